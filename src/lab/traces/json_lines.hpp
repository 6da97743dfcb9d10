// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Reads routing recorded as one JSON object a line, with names of the reader's choosing.

#include <filesystem>
#include <string>
#include <string_view>

#include "hotset/trace/routing_trace.hpp"
#include "lab/files/reading_notes.hpp"
#include "lab/traces/field_map.hpp"

namespace hotset::lab {

/// Errors: trace_error naming the line.
[[nodiscard]] routing_trace read_json_lines(const std::filesystem::path& path,
                                            const field_map& fields = {}, std::int32_t experts = 0,
                                            reading_notes* notes = nullptr);

/// Parses text in memory; messages name `file`. `experts` 0: the highest id + 1.
[[nodiscard]] routing_trace parse_json_lines(std::string_view text, const std::string& file,
                                             const field_map& fields = {}, std::int32_t experts = 0,
                                             reading_notes* notes = nullptr);

}  // namespace hotset::lab
