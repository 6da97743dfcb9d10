// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Placements of experts in the formats of engines.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/placement/placement_shape.hpp"

namespace hotset::lab {

enum class placement_format : std::uint8_t {
  vllm,          ///< JSON hotset.placement/1, which hotset's plug-in of vLLM reads
  sglang,        ///< JSON for --init-expert-location: a row for every layer, dense ones in order
  tensorrt_llm,  ///< YAML for the MoE load balancer's initial_global_assignments
  deepseek,      ///< JSON: phy2log, log2phy and logcnt, as rebalance_experts returns them
};
/// Parses "vllm", "sglang", "tensorrt-llm" or "deepseek". Errors: usage_error.
[[nodiscard]] placement_format parse_placement_format(std::string_view text);

/// A placement of the MoE layers of a model. The model's first `dense_layers` layers have no experts.
struct placed_model {
  placement_shape shape;
  std::int32_t dense_layers = 0;
  std::vector<expert_placement> layers;
};

[[nodiscard]] std::string to_text(const placed_model& model, placement_format format);

/// Reads a file that to_text wrote, in any format, of `layers` MoE layers behind `dense_layers`.
/// Errors: trace_error, one line: another number of layers or slots, an expert without a slot, an id that is none.
[[nodiscard]] std::vector<expert_placement> parse_placement(std::string_view text,
                                                            const std::string& file,
                                                            const placement_shape& shape,
                                                            std::int32_t dense_layers,
                                                            std::int32_t layers);

}  // namespace hotset::lab
