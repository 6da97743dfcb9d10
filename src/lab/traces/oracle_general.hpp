// SPDX-License-Identifier: Apache-2.0
#pragma once
/// libCacheSim's oracleGeneral: packed little-endian records of clock u32, object u64, size u32, next i64.

#include <filesystem>
#include <string>
#include <string_view>

#include "hotset/trace/routing_trace.hpp"
#include "lab/files/output_file.hpp"

namespace hotset::lab {

/// Bytes of a record.
inline constexpr std::size_t oracle_general_record = 24;

/// One layer, top_k 1, each record a step of its own; objects are renumbered in the order of their
/// first appearance. expert_bytes is the common size, or unknown where sizes differ (then metadata
/// "sizes" is "differ"). The next access is checked for range only: -1 and 2^63 - 1 both mean none.
/// Errors: trace_error naming the byte.
[[nodiscard]] routing_trace read_oracle_general(const std::filesystem::path& path);

/// The same for bytes in memory; file is for messages.
[[nodiscard]] routing_trace parse_oracle_general(std::string_view bytes, const std::string& file);

/// Why a trace has no expert bytes, for messages. Pre: it has none.
[[nodiscard]] std::string_view why_no_expert_bytes(const routing_trace& trace);

/// Whether the bytes look like the beginning of such a file: clocks that never fall, sizes of 1 or more,
/// next accesses that lie ahead.
[[nodiscard]] bool looks_like_oracle_general(std::string_view beginning) noexcept;

/// One record for each routed id, step by step, layer by layer, in token-major rank order.
/// clock: the step; object: layer * experts + expert; size: the layer's expert bytes, 1 if unknown;
/// next: number of the record (from 0) that next names the object, -1 if none does.
/// Errors: trace_error if a size exceeds 2^32 - 1; as output_file if it cannot be written.
void write_oracle_general(const routing_trace& trace, output_file&& out);

}  // namespace hotset::lab
