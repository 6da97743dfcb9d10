// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The decoder: sequences over a pool of KV blocks, and a provider of experts.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tiny_moe/model/expert_provider.hpp"
#include "tiny_moe/model/kv_pool.hpp"
#include "tiny_moe/model/model.hpp"

namespace tiny_moe {

struct engine_config {
  std::size_t max_positions = 0;  ///< tokens of a sequence; 0: the model's maximum
  std::size_t max_tokens = 0;     ///< tokens of a forward pass; 0: max_positions
  /// Experts of a layer that a provider may name: the model's, then those of adapters; 0: the model's.
  std::size_t virtual_experts = 0;
};

/// The next token of a sequence.
struct token_row {
  sequence_id sequence = 0;
  std::uint8_t token = 0;
};

/// Runs the sequences of a pool, several in one pass. A token gives the same logits, bit for bit, in a prompt, alone,
/// or beside other sequences' tokens. Threads: one at a time.
class batch_engine {
 public:
  /// Pre: `weights`, `experts` and `pool` outlive the engine; the pool was made for the model's shape.
  /// Errors: std::invalid_argument if max_positions exceeds the model's, or virtual_experts is below its number of
  /// experts.
  batch_engine(const model& weights, expert_provider& experts, kv_pool& pool,
               const engine_config& config = {});

  /// Runs one forward pass: appends each row's token to its sequence, in row order. Every layer is one visit of all
  /// rows.
  /// Returns: logits [rows, 256], valid until the next pass.
  /// Errors: std::length_error if the rows do not fit the engine, a sequence or the pool, provider_error if the
  /// provider breaks its contract; all sequences are then unchanged.
  std::span<const float> forward(std::span<const token_row> rows, request_kind kind);

  /// Closes a sequence of the pool, and notifies the provider.
  void close(sequence_id sequence) noexcept;

  [[nodiscard]] kv_pool& pool() const noexcept { return *pool_; }
  /// Number of forward passes begun, and of the next one.
  [[nodiscard]] std::uint64_t steps() const noexcept { return step_; }
  [[nodiscard]] std::size_t max_positions() const noexcept { return max_positions_; }
  [[nodiscard]] std::size_t max_tokens() const noexcept { return max_tokens_; }

 private:
  class compute_of_visit;
  class rows_of_pass;

  // A sequence with rows in the pass.
  struct member {
    sequence_id sequence = 0;
    std::size_t tokens = 0;       // including those of the pass
    std::size_t first_block = 0;  // beginning of its table in blocks_
  };
  struct row_place {
    std::size_t member = 0;
    std::size_t position = 0;
  };

  void name_rows(std::span<const token_row> rows);
  std::size_t member_of(sequence_id sequence);
  void take_places(std::span<const token_row> rows);
  [[nodiscard]] float* row_of(const row_place& place, std::size_t first_row) const noexcept;
  void attention(std::size_t layer, std::size_t tokens);
  void experts(std::size_t layer, std::size_t tokens, std::uint64_t step, request_kind kind);

  const model* model_;
  expert_provider* provider_;
  kv_pool* pool_;
  std::size_t max_positions_;
  std::size_t max_tokens_;
  std::size_t virtual_experts_;
  std::uint64_t step_ = 0;

  std::vector<float> cosines_;  // [max_positions, head_size / 2]
  std::vector<float> sines_;

  // Scratch of one pass.
  std::vector<std::int32_t> token_ids_;   // [rows], tokens
  std::vector<std::uint32_t> sequences_;  // [rows], numbers of the sequences
  std::vector<std::uint32_t> adapters_;   // [rows]
  std::vector<member> members_;
  std::vector<row_place> places_;  // [rows]
  std::vector<float*> blocks_;     // the members' tables in sequence

  std::vector<float> stream_;         // [max_tokens, hidden], the residual stream
  std::vector<float> normed_;         // [max_tokens, hidden]
  std::vector<float> query_;          // [max_tokens, heads * head_size]
  std::vector<float> mixed_;          // [max_tokens, heads * head_size]
  std::vector<float> added_;          // [max_tokens, hidden], a block's addition to the stream
  std::vector<float> scores_;         // [max_positions]
  std::vector<float> router_logits_;  // [max_tokens, experts]
  std::vector<float> probabilities_;  // [max_tokens, experts]
  std::vector<std::int32_t> ids_;     // [max_tokens, top_k]
  std::vector<float> weights_;        // [max_tokens, top_k]
  std::vector<float> logits_;         // [max_tokens, 256]

  // Scratch of one visit.
  std::vector<std::uint8_t> computed_;    // [max_tokens, top_k]
  std::vector<std::int32_t> all_tokens_;  // 0, 1, 2, ...
  std::vector<std::size_t> first_row_;    // [virtual experts + 1]
  std::vector<expert_row> rows_;          // rows of one chunk, grouped by expert
  std::vector<float> expert_out_;         // [chunk * top_k, hidden]
  std::vector<float> scratch_;
};

/// Runs one sequence in its own pool: one block of max_positions tokens. A token gives the same logits, bit for bit,
/// in a prompt or alone. Allocates only at construction.
/// Threads: one at a time.
class engine {
 public:
  /// Pre: `weights` and `experts` outlive the engine.
  /// Errors: std::invalid_argument if max_positions exceeds the model's, or max_tokens exceeds max_positions.
  engine(const model& weights, expert_provider& experts, const engine_config& config = {});
  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;
  ~engine() { batch_.close(sequence_); }

  /// Runs one forward pass: appends `tokens` to the sequence. Every layer is one visit of all of them.
  /// Default kind: decode for one token after others, else prefill.
  /// Returns: logits [tokens, 256], valid until the next pass.
  /// Errors: std::length_error if the tokens do not fit, provider_error if the provider breaks its contract; the
  /// sequence is then unchanged.
  std::span<const float> forward(std::span<const std::uint8_t> tokens,
                                 std::optional<request_kind> kind = std::nullopt);

  /// Tokens in the KV cache.
  [[nodiscard]] std::size_t position() const noexcept { return pool_.length(sequence_); }
  /// Number of forward passes begun, and of the next one.
  [[nodiscard]] std::uint64_t steps() const noexcept { return batch_.steps(); }
  [[nodiscard]] std::size_t max_positions() const noexcept { return batch_.max_positions(); }
  [[nodiscard]] std::size_t max_tokens() const noexcept { return batch_.max_tokens(); }

  /// Removes the tokens from `position` on. Steps continue. Pre: position <= position().
  void rewind(std::size_t position) noexcept;
  /// Ends the sequence and begins another.
  void reset() noexcept;

 private:
  kv_pool pool_;
  batch_engine batch_;
  sequence_id sequence_;
  std::vector<token_row> rows_;  // rows of one pass
};

}  // namespace tiny_moe
