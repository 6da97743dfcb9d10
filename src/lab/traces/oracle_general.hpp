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

/// One layer, top_k 1, one step per record; objects are renumbered in order of first appearance. expert_bytes is the
/// common size, or unknown if sizes differ (then metadata "sizes" is "differ"). The next access is checked only for
/// range: -1 and 2^63 - 1 both mean none.
/// Errors: trace_error naming the byte.
[[nodiscard]] routing_trace read_oracle_general(const std::filesystem::path& path);

/// Parses bytes in memory; file is for messages.
[[nodiscard]] routing_trace parse_oracle_general(std::string_view bytes, const std::string& file);

/// Reason for missing expert bytes, for messages. Pre: the trace has none.
[[nodiscard]] std::string_view why_no_expert_bytes(const routing_trace& trace);

/// Whether the bytes look like the beginning of such a file: clocks that never fall, sizes of at least 1, next
/// accesses after their record.
[[nodiscard]] bool looks_like_oracle_general(std::string_view beginning) noexcept;

/// Writes one record per routed id, step by step, layer by layer, in token-major rank order.
/// clock: the step; object: layer * experts + expert; size: the layer's expert bytes, 1 if unknown; next: number of
/// the next record with the object, from 0; -1 if there is none.
/// Errors: trace_error if a size exceeds 2^32 - 1; those of output_file if it cannot be written.
void write_oracle_general(const routing_trace& trace, output_file&& out);

}  // namespace hotset::lab
