// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Opens a trace of any known format, which it recognises by its content.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

#include "hotset/trace/routing_trace.hpp"
#include "lab/files/reading_notes.hpp"
#include "lab/traces/field_map.hpp"
#include "lab/traces/kv_trace.hpp"

namespace hotset::lab {

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

/// "auto", "native", "bigmoe", "esft", "layer-expert", "jsonl", "csv", "npy", "oracle", "mooncake", "azure".
[[nodiscard]] std::string_view name_of(trace_format format) noexcept;
/// Errors: invalid_config that lists the names.
[[nodiscard]] trace_format parse_trace_format(std::string_view name);

/// How tokens are cut into steps, whatever the recording says.
struct step_shape {
  /// Decode: a token is a step; prefill: a sequence is.
  request_class kind = request_class::decode;
  std::uint32_t chunk = 0;    ///< prefill: tokens of a step; 0: the whole sequence
  std::uint32_t abreast = 1;  ///< decode: sequences that go on together, a token of each in a step
};

/// Reads "decode", "decode:4", "prefill" or "prefill:512". Errors: invalid_config.
[[nodiscard]] step_shape parse_step_shape(std::string_view text);

/// Gives every row a new step and kind. A step spans several sequences only where `abreast` says so: then rows change
/// places, and as soon as a sequence ends the next one begins in its place. Complexity: O(bytes of the trace).
void cut_steps(routing_trace& trace, const step_shape& shape);

/// Leaves out the layers in which no row is routed, which are dense, if any layer is routed. Metadata "layers" keeps the numbers
/// of the others. Predictions count layers and are dropped with them.
void leave_out_dense_layers(routing_trace& trace, reading_notes* notes = nullptr);

/// How a recording is read.
struct open_trace_options {
  trace_format format = trace_format::automatic;
  /// None: the recording's own steps; a token a step where it has none.
  std::optional<step_shape> as{};
  std::uint64_t first = 0;        ///< only so many tokens of the recording; 0: all
  field_map fields{};             ///< json_lines, columns
  std::int32_t top_k = 0;         ///< esft, layer_expert; 0: infer. arrays: of logits
  std::int32_t experts = 0;       ///< of text formats and arrays that do not say it; 0: infer
  std::uint64_t block_bytes = 1;  ///< mooncake, azure: bytes of one block
  reading_notes* notes = nullptr;
};

/// A CSV is one of columns if its header has those of the fields.
/// Errors: trace_error if the content is of no known format.
[[nodiscard]] trace_format recognise_trace(const std::filesystem::path& path,
                                           const field_map& fields = {});

/// A row that names an expert twice (zeros of a dense layer, padding) becomes absent. Layers without a routed row are left
/// out, except from native traces, which count layers as their engine does. Notes say what was guessed or left out.
/// Compressed input (.gz .xz .zst, tar of any of them, zip) is unpacked, except native traces, which are mapped.
/// Bounds: a packed file unpacks to input_limits at most; reading takes less than 64 MiB and 128 bytes for each byte of the
/// input, unpacked; layers x experts of what is returned is at most 2^20 and 64 for each routed expert.
/// Errors: trace_error: one line: file, line or byte, what is accepted.
[[nodiscard]] routing_trace open_trace(const std::filesystem::path& path,
                                       const open_trace_options& options = {});

}  // namespace hotset::lab
