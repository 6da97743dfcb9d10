// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Reads and writes the routing records of ESFT: a folder or archive of expert_weights_<layer>.txt.
///
/// A line is a sequence: all tokens' expert ids, token-major, TAB-separated, an empty column, then the gate
/// weights in the same order. Within a token the file's order is not the rank order: a trace holds each
/// token by descending weight, ties in file order, and file_position remembers where each stood. So an
/// export gives back the bytes that were read.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "hotset/trace/routing_trace.hpp"
#include "lab/files/input_files.hpp"
#include "lab/traces/trace_options.hpp"

namespace hotset::lab {

/// A trace (each token a decode step) and the order within each token in which the file had it.
struct esft_trace {
  routing_trace trace;
  /// [T, L, K]: position in the file of the expert at each rank.
  std::vector<std::uint16_t> file_position;
};

/// Scores by which ESFT selects experts, per layer and expert.
struct esft_scores {
  std::vector<std::vector<double>> gate;   ///< [L][E]: summed weight / tokens
  std::vector<std::vector<double>> token;  ///< [L][E]: times selected / (tokens * top_k)
};

/// Without a top_k it is the largest that divides every line into tokens of distinct experts whose weights sum to at
/// most 1. Without a number of experts there are as many as summary.json lists, else the highest id + 1.
/// Errors: trace_error naming file and line.
[[nodiscard]] esft_trace read_esft(const std::filesystem::path& path,
                                   const open_trace_options& options = {});

/// Parses files in memory; messages name `file`.
[[nodiscard]] esft_trace parse_esft(const std::vector<input_entry>& entries,
                                    const std::string& file,
                                    const open_trace_options& options = {});

/// Text of one layer's file, weights in the fewest digits that read back the same.
/// Pre: trace has weights and no absent ids (else trace_error).
[[nodiscard]] std::string format_esft_layer(const esft_trace& esft, layer_id layer);

/// Writes every layer's file into folder, which is made if need be. A trace without file_position is
/// written in rank order. Errors: trace_error.
void write_esft(const esft_trace& esft, const std::filesystem::path& folder);

/// What summary.json holds, computed anew from the tokens. Pre: trace has weights.
[[nodiscard]] esft_scores score_esft(const routing_trace& trace);

}  // namespace hotset::lab
