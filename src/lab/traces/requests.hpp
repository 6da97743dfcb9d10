// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Request traces: JSON lines or a CSV with a time, prompt tokens and output tokens of each request.

#include <filesystem>
#include <string>
#include <string_view>

#include "lab/files/reading_notes.hpp"
#include "lab/traces/kv_trace.hpp"

namespace hotset::lab {

inline constexpr std::string_view accepted_request_names =
    "columns or keys for the time, prompt tokens and output tokens, such as "
    "TIMESTAMP,ContextTokens,GeneratedTokens or timestamp, input_length, output_length";

/// Whether a line is the header of a CSV, or a JSON object, with a request's time, prompt and output tokens.
[[nodiscard]] bool looks_like_requests(std::string_view line);

/// Reads the traces of Azure, BurstGPT, Mooncake, Bailian and others by the names of their columns or keys; further
/// ones are ignored. A time is a date, seconds, or in JSON lines without fractions milliseconds. The lengths of the
/// prompts say how many tokens a block of `hash_ids` has (Mooncake 512, Bailian 16). Without `hash_ids`, requests name
/// no blocks: sharing is not recorded. Messages name `file`. Errors: trace_error naming the line.
[[nodiscard]] kv_trace parse_requests(std::string_view text, const std::string& file,
                                      reading_notes* notes = nullptr);

/// Formats the input of parse_requests: one JSON line per request, as Mooncake does.
[[nodiscard]] std::string format_requests(const kv_trace& trace);

/// Opens a request trace; compressed input is unpacked. Errors: trace_error.
[[nodiscard]] kv_trace open_requests(const std::filesystem::path& path,
                                     reading_notes* notes = nullptr);

/// Opens requests for users of blocks: if they name none, each gets its own blocks, which is noted.
[[nodiscard]] kv_trace open_block_requests(const std::filesystem::path& path,
                                           reading_notes* notes = nullptr);

}  // namespace hotset::lab
