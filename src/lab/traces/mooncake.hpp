// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Reads and writes Mooncake's request traces: JSON lines of timestamp, input_length, output_length, hash_ids.

#include <filesystem>
#include <string>
#include <string_view>

#include "lab/traces/kv_trace.hpp"

namespace hotset::lab {

/// Errors: trace_error naming the line.
[[nodiscard]] kv_trace read_mooncake(const std::filesystem::path& path);

/// The same for text in memory; file is for messages.
[[nodiscard]] kv_trace parse_mooncake(std::string_view text, const std::string& file);

/// What parse_mooncake reads: a line for each request.
[[nodiscard]] std::string format_mooncake(const kv_trace& trace);

}  // namespace hotset::lab
