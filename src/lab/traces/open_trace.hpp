// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Opens a trace of any known format; recognises it by content.

#include <filesystem>
#include <string_view>

#include "hotset/trace/routing_trace.hpp"
#include "lab/files/reading_notes.hpp"
#include "lab/traces/kv_trace.hpp"
#include "lab/traces/trace_options.hpp"
#include "lab/traces/trace_rows.hpp"

namespace hotset::lab {

/// "auto", "native", "bigmoe", "esft", "layer-expert", "jsonl", "csv", "npy", "oracle", "requests".
[[nodiscard]] std::string_view name_of(trace_format format) noexcept;
/// Errors: usage_error that lists the names.
[[nodiscard]] trace_format parse_trace_format(std::string_view name);

/// A CSV is of columns if its header has those of the fields.
/// Errors: trace_error if the content has no known format.
[[nodiscard]] trace_format recognise_trace(const std::filesystem::path& path,
                                           const field_map& fields = {});

/// A row that names an expert twice (zeros of a dense layer, padding) becomes absent. Layers without a routed row are
/// left out, except from native traces, which count layers as their engine does. Notes list guesses and omissions.
/// Compressed input (.gz .xz .zst, tar of any of them, zip) is unpacked, except native traces, which are mapped.
/// Bounds: a packed file unpacks to at most the limit of read_input; reading takes less than 64 MiB and 128 bytes for
/// each byte of the unpacked input; layers x experts of the result is at most 2^20 and 64 for each routed expert.
/// Errors: trace_error, one line: file, line or byte, accepted values.
[[nodiscard]] routing_trace open_trace(const std::filesystem::path& path,
                                       const open_trace_options& options = {});

}  // namespace hotset::lab
