// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Request traces: Mooncake's JSON lines and Azure's CSV.

#include <filesystem>
#include <string>
#include <string_view>

#include "lab/traces/kv_trace.hpp"

namespace hotset::lab {

/// Opens a request trace; recognises the format by its first bytes. Compressed input is unpacked. Errors:
/// trace_error.
[[nodiscard]] kv_trace open_requests(const std::filesystem::path& path);

/// Opens requests for users of blocks: if they name none, as Azure's, each gets its own blocks.
[[nodiscard]] kv_trace open_block_requests(const std::filesystem::path& path);

/// JSON lines of timestamp, input_length, output_length, hash_ids, in memory; messages name `file`.
/// Errors: trace_error naming the line.
[[nodiscard]] kv_trace parse_mooncake(std::string_view text, const std::string& file);

/// Formats the input of parse_mooncake: one line per request.
[[nodiscard]] std::string format_mooncake(const kv_trace& trace);

/// AzurePublicDataset, LLM inference: CSV of TIMESTAMP,ContextTokens,GeneratedTokens, in memory; messages name
/// `file`. The requests name no blocks: sharing is not recorded. Errors: trace_error naming the line.
[[nodiscard]] kv_trace parse_azure_requests(std::string_view text, const std::string& file);

}  // namespace hotset::lab
