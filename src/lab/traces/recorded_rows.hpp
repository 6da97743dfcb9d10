// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Rows of experts, in the order of a file, that say more or less of their places.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lab/traces/text_scan.hpp"
#include "lab/traces/trace_records.hpp"

namespace hotset::lab {

/// What a row says of its place; the rest is inferred.
struct row_place {
  std::int32_t layer = 0;  ///< the recording's own number
  std::optional<std::uint64_t> step{};
  std::optional<std::uint64_t> token{};
  std::optional<std::int32_t> rank{};  ///< of the first expert
  std::optional<request_class> phase{};
  std::string_view sequence = "0";  ///< a number or a name
};

/// Collects rows and makes a trace of them. Sequences may be interleaved; they are numbered by value if all names are
/// numbers below 2^32, else by first appearance.
///   token alone: each token is a step.
///   step alone: rows of one layer that follow each other are the step's tokens.
///   neither: a step ends where the layer does not rise. A prompt may be recorded layer by layer: n rows of each of its
///     layers, then those of the next. Such rows become the n tokens of one step, prefill if no row says its phase.
///   rank: a row whose rank rises within a layer continues the token. Without ranks: the order in the file.
class recorded_rows {
 public:
  /// Pre: `lines` outlives it: refusals name its current line.
  recorded_rows(record_facts facts, const line_scanner& lines)
      : facts_(std::move(facts)), lines_(lines) {}

  /// Begins a row.
  void begin(const row_place& place);
  /// Appends an expert to the row's token; -1 is absent. Errors: trace_error for too many.
  void add(expert_id id, float weight = 0);
  /// Leaves a rank of the token empty. Errors: as add().
  void skip();
  /// The experts that follow are those of the row's next token.
  void next_token();

  [[nodiscard]] bool empty() const noexcept { return records_.empty(); }
  /// Highest accepted id.
  [[nodiscard]] std::int32_t most_expert() const noexcept { return facts_.most_expert(); }
  /// `weights`: whether rows had them. Errors: trace_error.
  [[nodiscard]] routing_trace finish(bool weights) &&;

 private:
  /// Where the last row of a sequence ended.
  struct end {
    std::uint64_t step = 0;
    std::uint64_t token = 0;
    std::int32_t layer = 0;
    std::int32_t rank = 0;
  };

  void join_layer_by_layer();
  void settle_sequences();
  void number_ranks();

  record_facts facts_;
  const line_scanner& lines_;
  std::unordered_map<std::string, std::uint64_t> sequences_;
  std::unordered_map<std::uint64_t, end> ends_;  ///< by sequence
  end* here_ = nullptr;                          ///< of the row's sequence
  trace_record next_;
  std::vector<trace_record> records_;
  bool numbered_ = false;  ///< a row says its step or token
  bool phased_ = false;
  bool ranked_ = false;
};

}  // namespace hotset::lab
