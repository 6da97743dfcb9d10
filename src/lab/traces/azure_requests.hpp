// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Reads Azure's request traces (AzurePublicDataset, LLM inference): CSV of TIMESTAMP,ContextTokens,GeneratedTokens.

#include <filesystem>
#include <string>
#include <string_view>

#include "lab/traces/kv_trace.hpp"

namespace hotset::lab {

/// The requests name no blocks: what they share is not recorded. Errors: trace_error naming the line.
[[nodiscard]] kv_trace read_azure_requests(const std::filesystem::path& path);

/// The same for text in memory; file is for messages.
[[nodiscard]] kv_trace parse_azure_requests(std::string_view text, const std::string& file);

}  // namespace hotset::lab
