// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The decoder: one sequence, a KV cache, and a provider that serves the experts.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tiny_moe/expert_provider.hpp"
#include "tiny_moe/model.hpp"

namespace tiny_moe {

struct engine_config {
  std::size_t max_positions = 0;  ///< rows of the KV cache; 0: what the model allows
  std::size_t max_tokens = 0;     ///< tokens of one forward pass; 0: max_positions
};

/// Runs one sequence. A token gives the same logits, bit for bit, whether it comes in a prompt or
/// alone. Allocates at construction only. Threads: one at a time.
class engine {
 public:
  /// Pre: `weights` and `experts` outlive the engine.
  /// Errors: std::invalid_argument if max_positions exceeds the model's, or max_tokens exceeds
  /// max_positions.
  engine(const model& weights, expert_provider& experts, const engine_config& config = {});

  /// One forward pass: appends `tokens` to the sequence. Every layer is one visit of all of them.
  /// Without a kind: decode for one token after others, else prefill.
  /// Returns: logits [tokens, 256], valid until the next pass.
  /// Errors: std::length_error if the tokens do not fit, provider_error if the provider breaks its
  /// contract; the sequence is then as it was before the pass.
  std::span<const float> forward(std::span<const std::uint8_t> tokens,
                                 std::optional<request_kind> kind = std::nullopt);

  /// Tokens in the KV cache.
  [[nodiscard]] std::size_t position() const noexcept { return position_; }
  /// Forward passes begun; the number of the next one.
  [[nodiscard]] std::uint64_t steps() const noexcept { return step_; }
  [[nodiscard]] std::size_t max_positions() const noexcept { return max_positions_; }
  [[nodiscard]] std::size_t max_tokens() const noexcept { return max_tokens_; }

  /// Forgets the tokens from `position` on. Steps keep counting. Pre: position <= position().
  void rewind(std::size_t position) noexcept;
  /// Forgets the sequence.
  void reset() noexcept { rewind(0); }

 private:
  class compute_of_visit;

  void attention(std::size_t layer, std::size_t tokens);
  void experts(std::size_t layer, std::size_t tokens, std::uint64_t step, request_kind kind);

  const model* model_;
  expert_provider* provider_;
  std::size_t max_positions_;
  std::size_t max_tokens_;
  std::size_t position_ = 0;
  std::uint64_t step_ = 0;

  std::vector<float> cosines_;  // [max_positions, head_size / 2]
  std::vector<float> sines_;
  std::vector<float> keys_;  // [layers, max_positions, heads * head_size]
  std::vector<float> values_;

  std::vector<float> stream_;         // [max_tokens, hidden], the residual stream
  std::vector<float> normed_;         // [max_tokens, hidden]
  std::vector<float> query_;          // [max_tokens, heads * head_size]
  std::vector<float> mixed_;          // [max_tokens, heads * head_size]
  std::vector<float> added_;          // [max_tokens, hidden], what a block adds to the stream
  std::vector<float> scores_;         // [max_positions]
  std::vector<float> router_logits_;  // [max_tokens, experts]
  std::vector<float> probabilities_;  // [max_tokens, experts]
  std::vector<std::int32_t> ids_;     // [max_tokens, top_k]
  std::vector<float> weights_;        // [max_tokens, top_k]
  std::vector<float> logits_;         // [max_tokens, 256]

  // of one visit
  std::vector<std::uint8_t> computed_;    // [max_tokens, top_k]
  std::vector<std::int32_t> all_tokens_;  // 0, 1, 2, ...
  std::vector<std::size_t> first_row_;    // [experts + 1]
  std::vector<expert_row> rows_;          // of one chunk, grouped by expert
  std::vector<float> expert_out_;         // [chunk * top_k, hidden]
  std::vector<float> scratch_;
};

}  // namespace tiny_moe
