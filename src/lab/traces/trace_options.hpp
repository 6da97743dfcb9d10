// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Options for reading a recording: its format, and facts that it lacks.

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/core/ids.hpp"
#include "lab/files/reading_notes.hpp"

namespace hotset::lab {

inline constexpr std::int32_t most_ranks = 4096;       ///< accepted top_k of a text format
inline constexpr std::int32_t most_layers = 65536;     ///< accepted layer numbers of a text format
inline constexpr std::int32_t most_experts = 1 << 20;  ///< accepted expert ids of a text format

/// Known formats.
enum class trace_format : std::uint8_t {
  automatic,     ///< recognised by content
  native,        ///< safetensors, hotset.trace/1
  bigmoe,        ///< BigMoeOnEdge route CSV
  esft,          ///< folder or archive of expert_weights_<layer>.txt
  layer_expert,  ///< CSV of layer,expert[,weight]
  json_lines,    ///< one object per line, with a field map
  columns,       ///< CSV with a header, with a field map
  arrays,        ///< NumPy's .npy or .npz
  oracle,        ///< libCacheSim oracleGeneral
  requests,      ///< request trace; opened as accesses to the blocks of the prompts
};

/// Division of tokens into steps, replacing the recording's.
struct step_shape {
  /// Decode: each token is a step; prefill: each sequence is.
  request_class kind = request_class::decode;
  std::uint32_t chunk = 0;  ///< prefill: tokens per step; 0: the whole sequence
  /// decode: sequences that run in parallel, one token of each per step.
  std::uint32_t abreast = 1;
};

/// Parses "decode", "decode:4", "prefill" or "prefill:512". Errors: invalid_config.
[[nodiscard]] step_shape parse_step_shape(std::string_view text);

/// Numbers of layers in a recording, both included.
struct layer_range {
  std::int32_t first = 0;
  std::int32_t last = most_layers - 1;
  [[nodiscard]] bool is_open() const noexcept { return last == most_layers - 1; }
};

/// Parses "1..45", "3..", "7" or a list of them. Errors: invalid_config.
[[nodiscard]] std::vector<layer_range> parse_layer_ranges(std::string_view text);

/// Rows of a recording by number, without the last.
struct row_range {
  std::uint64_t first = 0;
  std::uint64_t end = std::numeric_limits<std::uint64_t>::max();
  [[nodiscard]] bool has(std::uint64_t number) const noexcept {
    return number >= first && number < end;
  }
};

/// Parses "100:200" (200 excluded), "100..199" (199 included), or "100:" and "100.." (to the end).
/// Errors: invalid_config.
[[nodiscard]] row_range parse_row_range(std::string_view text);

/// Names of the keys of a JSON line, or of the columns of a CSV. Only layer and experts are required.
struct field_map {
  std::string layer = "layer";
  /// List of one token's ids. In CSV also several columns, as "e0..e5".
  std::string experts = "experts";
  std::string weights = "weights";  ///< same shape as the experts; in all rows or none
  /// Default: token if there is one, else a step ends where the layer does not rise.
  std::string step = "step";
  std::string token = "token";  ///< default: the next token of this step and layer
  std::string phase = "phase";  ///< "decode" (default), "prefill", "prompt", "verify", or 0, 1, 2
  std::string sequence = "sequence";  ///< number or name; default: one sequence
  /// CSV: rank of the row's first expert; default: after those of the previous rows.
  std::string rank = "rank";
  bool operator==(const field_map&) const = default;
};

/// Parses "layer=l,experts=ids": other fields keep their names. Errors: invalid_config.
[[nodiscard]] field_map parse_field_map(std::string_view text);

/// Parses accepted_phases, in any case.
[[nodiscard]] std::optional<request_class> parse_phase(std::string_view text);
inline constexpr std::string_view accepted_phases =
    "decode (or generation), prefill (prompt, extend, context), verify, or 0, 1, 2; --field "
    "phase=none reads none";

/// The number of a layer in a text with one number, such as "model.layers.3.mlp" or "3"; else nothing.
[[nodiscard]] std::optional<std::int32_t> only_number(std::string_view text) noexcept;

/// Returns "gemma" for "a/gemma.route.csv".
[[nodiscard]] std::string trace_name(const std::string& file);

/// Options for reading a recording. Each reader uses those that its format needs; open_trace notes the rest.
struct open_trace_options {
  trace_format format = trace_format::automatic;
  /// None: the recording's own steps; without those, one token per step.
  std::optional<step_shape> as{};
  std::uint64_t first = 0;               ///< tokens of the recording to read; 0: all
  std::optional<row_range> tokens{};     ///< tokens to read, counted from 0; none: all
  std::optional<row_range> sequences{};  ///< numbers of the sequences to read; none: all
  std::vector<layer_range> layers{};     ///< empty: all
  field_map fields{};                    ///< json_lines, columns
  std::int32_t top_k = 0;  ///< esft, layer_expert, 0: infer; arrays: for logits; jsonl: for base64
  std::int32_t experts = 0;       ///< for text formats and arrays without it; 0: infer
  std::uint64_t block_bytes = 1;  ///< requests: bytes of one block
  reading_notes* notes = nullptr;
};

}  // namespace hotset::lab
