// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Builds a trace from recorded rows of experts whose place is partly unknown.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "hotset/trace/routing_trace.hpp"
#include "lab/files/text_scan.hpp"
#include "lab/traces/trace_options.hpp"

namespace hotset::lab {

/// Facts from a header or from options; 0 means: infer.
struct record_facts {
  record_facts(std::string name, std::string recorder, const open_trace_options& options)
      : file(std::move(name)),
        source(std::move(recorder)),
        experts(options.experts),
        notes(options.notes) {}

  /// Highest accepted id.
  [[nodiscard]] std::int32_t most_expert() const noexcept {
    return (experts > 0 ? experts : most_experts) - 1;
  }

  std::string file;
  std::string model{};
  std::string source;
  std::int32_t experts;
  std::int32_t top_k = 0;
  std::map<std::int32_t, std::uint64_t> layer_bytes{};  ///< by the recording's layer number
  reading_notes* notes;
};

/// Known parts of a row's place; the rest is inferred.
struct row_place {
  std::int32_t layer = 0;  ///< the recording's layer number
  std::optional<std::uint64_t> step{};
  std::optional<std::uint64_t> token{};
  std::optional<std::int32_t> rank{};  ///< rank of the first expert
  std::optional<request_class> phase{};
  std::string_view sequence = "0";  ///< a number or a name
};

/// One expert of one token in one layer.
struct trace_record {
  std::uint64_t sequence = 0;
  std::uint64_t step = 0;   ///< orders the steps of a sequence
  std::uint64_t token = 0;  ///< orders the tokens of a step
  std::int32_t layer = 0;   ///< the recording's layer number
  std::int32_t rank = 0;
  expert_id expert = no_expert;
  float weight = 0;
  request_class kind = request_class::decode;
  std::uint64_t line = 0;  ///< line that it was read from
};

/// Collects rows and builds a trace. Sequences may be interleaved. They are numbered by value if all names are
/// numbers below 2^32, else by first appearance.
///   token only: each token is a step.
///   step only: consecutive rows of one layer are the step's tokens.
///   neither: a step ends where the layer does not rise. A prompt may be recorded layer by layer: n rows of each of
///   its layers, then those of the next. Such rows become the n tokens of one step, prefill if no row has a phase.
///   rank: a row whose rank rises within a layer continues the token. Without ranks: file order.
/// Layers are renumbered in ascending order; metadata "layers" keeps the original numbers if they are not 0, 1, 2,
/// ... Sequences and steps are renumbered from 0.
class recorded_rows {
 public:
  /// Pre: `lines` outlives it: errors name its current line.
  recorded_rows(record_facts facts, const line_scanner& lines)
      : facts_(std::move(facts)), lines_(lines) {}

  /// Begins a row.
  void begin(const row_place& place);
  /// Appends an expert to the row's token; -1 is absent. Errors: trace_error for too many.
  void add(expert_id id, float weight = 0);

  /// Divides rows of one expert each, in execution order, into tokens of top_k experts; 0: the length of the shortest
  /// run of one layer. A pass ends where the layer falls. A layer with n times top_k rows in a pass routed n tokens
  /// (a batch: one prefill step). A layer with fewer tokens than its pass routed the last ones, as in an engine that
  /// needs only the last outputs. A pass of one token is a decode step.
  /// Errors: trace_error for a layer that ends inside a token.
  void divide(std::int32_t top_k);

  [[nodiscard]] bool empty() const noexcept { return records_.empty(); }
  /// Facts of a header; they may be set until the first row.
  [[nodiscard]] record_facts& facts() noexcept { return facts_; }
  /// Highest accepted id.
  [[nodiscard]] std::int32_t most_expert() const noexcept { return facts_.most_expert(); }
  /// Checks that rows in execution order end with the last rank of the last layer.
  /// Errors: trace_error naming the last line.
  void refuse_a_broken_end() const;
  /// Builds the trace. Notes an inferred number of experts and, if no row had a token or step, that most tokens lack
  /// layers.
  /// `weights`: whether rows had them.
  /// Errors: trace_error for no experts, an expert twice at one place, or an id out of range.
  [[nodiscard]] routing_trace finish(bool weights) &&;

 private:
  /// Place at which the last row of a sequence ended.
  struct end {
    std::uint64_t step = 0;
    std::uint64_t token = 0;
    std::int32_t layer = 0;
    std::int32_t rank = 0;
  };

  void join_layer_by_layer();
  void settle_sequences();
  void number_ranks();
  void sort_and_check();
  void infer_shape(routing_trace& trace) const;
  void fill(routing_trace& trace, const std::vector<std::int32_t>& layers, bool weights) const;

  record_facts facts_;
  const line_scanner& lines_;
  std::unordered_map<std::string, std::uint64_t> sequences_;
  std::unordered_map<std::uint64_t, end> ends_;  ///< by sequence
  end* here_ = nullptr;                          ///< end of the row's sequence
  trace_record next_;
  std::vector<trace_record> records_;
  bool numbered_ = false;  ///< whether a row has a step or token
  bool phased_ = false;
  bool ranked_ = false;
};

}  // namespace hotset::lab
