// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Reads the routing records of ESFT: a folder or archive of expert_weights_<layer>.txt.
///
/// A line is a sequence: all tokens' expert ids, token-major, TAB-separated, an empty column, then the gate weights
/// in the same order. The order within a token is not the rank order: a trace holds each token by descending weight,
/// ties in file order. Each token is a decode step.

#include <filesystem>
#include <string>
#include <vector>

#include "hotset/trace/routing_trace.hpp"
#include "lab/files/input_files.hpp"
#include "lab/traces/trace_options.hpp"

namespace hotset::lab {

/// Without a top_k it is the largest one that divides every line into tokens of distinct experts whose weights sum to
/// at most 1. Without a number of experts it comes from summary.json, else it is the highest id + 1.
/// Errors: trace_error naming file and line.
[[nodiscard]] routing_trace read_esft(const std::filesystem::path& path,
                                      const open_trace_options& options = {});

/// Parses files in memory; messages name `file`.
[[nodiscard]] routing_trace parse_esft(const std::vector<input_entry>& entries,
                                       const std::string& file,
                                       const open_trace_options& options = {});

}  // namespace hotset::lab
