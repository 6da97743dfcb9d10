// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How a recording is read: its format, and what it does not say itself.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "hotset/core/ids.hpp"
#include "lab/files/reading_notes.hpp"

namespace hotset::lab {

inline constexpr std::int32_t most_ranks = 4096;       ///< accepted top_k of a text format
inline constexpr std::int32_t most_layers = 65536;     ///< accepted layer numbers of a text format
inline constexpr std::int32_t most_experts = 1 << 20;  ///< accepted expert ids of a text format

/// The formats that are known.
enum class trace_format : std::uint8_t {
  automatic,     ///< by content
  native,        ///< safetensors, hotset.trace/1
  bigmoe,        ///< BigMoeOnEdge route CSV
  esft,          ///< folder or archive of expert_weights_<layer>.txt
  layer_expert,  ///< CSV of layer,expert[,weight]
  json_lines,    ///< one object a line, with a field map
  columns,       ///< CSV with a header, with a field map
  arrays,        ///< NumPy's .npy or .npz
  oracle,        ///< libCacheSim oracleGeneral
  mooncake,      ///< request trace; opened as block accesses
  azure,         ///< request trace that names no blocks; opened as accesses to blocks of their own
};

/// How tokens are cut into steps, whatever the recording says.
struct step_shape {
  /// Decode: a token is a step; prefill: a sequence is.
  request_class kind = request_class::decode;
  std::uint32_t chunk = 0;    ///< prefill: tokens of a step; 0: the whole sequence
  std::uint32_t abreast = 1;  ///< decode: sequences that go on together, a token of each in a step
};

/// Reads "decode", "decode:4", "prefill" or "prefill:512". Errors: invalid_config.
[[nodiscard]] step_shape parse_step_shape(std::string_view text);

/// Which key of a JSON line, or column of a CSV, means what. Only layer and experts must be there.
struct field_map {
  std::string layer = "layer";
  /// Of one token: a list of ids. CSV: or columns, as "e0..e5".
  std::string experts = "experts";
  std::string weights = "weights";  ///< of the same shape; everywhere or nowhere
  /// Default: token if there is one, else a step ends where the layer does not rise.
  std::string step = "step";
  std::string token = "token";  ///< default: the next one of this step and layer
  std::string phase = "phase";  ///< "decode" (default), "prefill", "prompt", "verify", or 0, 1, 2
  std::string sequence = "sequence";  ///< a number or a name; default: one sequence
  /// CSV: of the row's first expert; default: after those of the rows before.
  std::string rank = "rank";
};

/// Reads "layer=l,experts=ids": what is not named keeps its name. Errors: invalid_config.
[[nodiscard]] field_map parse_field_map(std::string_view text);

/// "decode", "prefill" (or "prompt"), "verify", or "0", "1", "2".
[[nodiscard]] std::optional<request_class> parse_phase(std::string_view text);
inline constexpr std::string_view accepted_phases =
    "decode, prefill (or prompt), verify, or 0, 1, 2";

/// "gemma" for "a/gemma.route.csv".
[[nodiscard]] std::string trace_name(const std::string& file);

/// How a recording is read. Each reader uses what its format does not say, and leaves the rest alone.
struct open_trace_options {
  trace_format format = trace_format::automatic;
  /// None: the recording's own steps; a token a step where it has none.
  std::optional<step_shape> as{};
  std::uint64_t first = 0;   ///< only so many tokens of the recording; 0: all
  field_map fields{};        ///< json_lines, columns
  std::int32_t top_k = 0;    ///< esft, layer_expert; 0: infer. arrays: of logits; ids must agree
  std::int32_t experts = 0;  ///< of text formats and arrays that do not say it; 0: infer
  std::uint64_t block_bytes = 1;  ///< mooncake, azure: bytes of one block
  reading_notes* notes = nullptr;
};

}  // namespace hotset::lab
