// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Reads one routed expert a row: layer,expert[,weight], as llama.cpp's evaluation callback dumps it.

#include <filesystem>
#include <string>
#include <string_view>

#include "hotset/trace/routing_trace.hpp"
#include "lab/files/reading_notes.hpp"

namespace hotset::lab {

/// What the rows do not say.
struct layer_expert_options {
  std::int32_t top_k = 0;    ///< 0: the shortest run of one layer
  std::int32_t experts = 0;  ///< 0: the highest id + 1
  reading_notes* notes = nullptr;
};

/// A pass ends where the layer number falls. A layer with n times top_k rows in a pass routed n tokens
/// (a batch: one prefill step); one that routed fewer than its pass routed the last ones, as an engine
/// does that needs only the last outputs. A pass of one token is a decode step. Two passes in a row
/// over a single layer cannot be told apart.
/// Errors: trace_error naming the line.
[[nodiscard]] routing_trace read_layer_expert_csv(const std::filesystem::path& path,
                                                  const layer_expert_options& options = {});

/// The same for text in memory; file is for messages.
[[nodiscard]] routing_trace parse_layer_expert_csv(std::string_view text, const std::string& file,
                                                   const layer_expert_options& options = {});

}  // namespace hotset::lab
