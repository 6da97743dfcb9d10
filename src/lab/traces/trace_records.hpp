// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Routed experts one by one, in any order, and the trace that they make together.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hotset/trace/routing_trace.hpp"
#include "lab/traces/text_scan.hpp"
#include "lab/traces/trace_options.hpp"

namespace hotset::lab {

inline constexpr std::int32_t most_ranks = 4096;       ///< accepted top_k of a text format
inline constexpr std::int32_t most_layers = 65536;     ///< accepted layer numbers of a text format
inline constexpr std::int32_t most_experts = 1 << 20;  ///< accepted expert ids of a text format

/// One expert that one token was routed to in one layer. line: where it was read.
struct trace_record {
  std::uint64_t sequence = 0;
  std::uint64_t step = 0;   ///< orders the steps of a sequence
  std::uint64_t token = 0;  ///< orders the tokens of a step
  std::int32_t layer = 0;   ///< the recording's own number
  std::int32_t rank = 0;
  expert_id expert = no_expert;
  float weight = 0;
  request_class kind = request_class::decode;
  std::uint64_t line = 0;
};

/// What a header or the options said; 0 means: infer.
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
  bool weights = false;
  bool places_inferred = false;                         ///< no row said its token or step
  std::map<std::int32_t, std::uint64_t> layer_bytes{};  ///< by the recording's number
  reading_notes* notes;
};

/// Layers become dense in ascending order of their numbers, which metadata "layers" keeps when they are
/// not 0, 1, 2, ...; sequences and steps are renumbered from 0.
/// Notes an inferred number of experts and, if places were inferred, that most tokens lack layers.
/// Errors: trace_error for no records, an expert twice at one place, or an id out of range.
[[nodiscard]] routing_trace trace_of(std::vector<trace_record> records, const record_facts& facts);

/// Rows that stand in execution order end with the last rank of the last layer. `top_k` 0: infer.
/// Errors: trace_error that names the last line.
void refuse_a_broken_end(const std::vector<trace_record>& records, std::int32_t top_k,
                         const line_scanner& lines);

/// The recording's number of each layer: metadata "layers", else 0, 1, 2, ...
[[nodiscard]] std::vector<std::int32_t> layer_numbers(const routing_trace& trace);
/// Sets metadata "layers", or removes it if the numbers are 0, 1, 2, ...
void keep_layer_numbers(routing_trace& trace, const std::vector<std::int32_t>& layers);

/// "decode", "prefill" (or "prompt"), "verify", or "0", "1", "2".
[[nodiscard]] std::optional<request_class> parse_phase(std::string_view text);
inline constexpr std::string_view accepted_phases =
    "decode, prefill (or prompt), verify, or 0, 1, 2";

/// "gemma" for "a/gemma.route.csv".
[[nodiscard]] std::string trace_name(const std::string& file);

}  // namespace hotset::lab
