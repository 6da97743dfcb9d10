// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Reads the route CSV of BigMoeOnEdge: turn,phase,step,layer,slot,expert,weight[,residency,expert_bytes].

#include <filesystem>
#include <string>
#include <string_view>

#include "hotset/trace/routing_trace.hpp"
#include "lab/files/reading_notes.hpp"

namespace hotset::lab {

/// A turn is a sequence. Its prompt tokens (phase 0) are one step, each decoded token is one.
///
/// Header comments are used where they are there: n_expert, n_expert_used, model, expert_bytes of each
/// layer. Else the shape is the smallest that holds the rows, and the bytes are what was read on a miss.
/// Layers that route nothing are left out; metadata "layers" keeps the original numbers.
/// Errors: trace_error naming the line. A file that ends before its last token's last rank is refused.
[[nodiscard]] routing_trace read_bigmoe_route_csv(const std::filesystem::path& path,
                                                  std::int32_t experts = 0,
                                                  reading_notes* notes = nullptr);

/// Parses text in memory; messages name `file`. `experts` counts if the header has none; 0: the highest id + 1.
[[nodiscard]] routing_trace parse_bigmoe_route_csv(std::string_view text, const std::string& file,
                                                   std::int32_t experts = 0,
                                                   reading_notes* notes = nullptr);

}  // namespace hotset::lab
