// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Views, forecasts and a prefetch policy's requests.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "hotset/core/forecast.hpp"
#include "hotset/core/routing_view.hpp"

namespace hotset::support {

using floats = std::vector<float>;

inline routing_view in_layer(layer_id layer, step_id step = 7) {
  return {.layer = layer, .step = step};
}
/// The forecast refers to the arguments.
inline forecast forecast_of(const floats& probabilities, std::int32_t depth = 1,
                            const floats& confidence = {}) {
  return {.probabilities = probabilities, .depth = depth, .confidence = confidence};
}
template <class Policy>
std::vector<prefetch_request> requests_of(Policy& policy, const routing_view& view,
                                          const forecast& expected, std::size_t room = 100) {
  std::vector<prefetch_request> out(room);
  out.resize(policy.propose(view, expected, out));
  return out;
}
inline std::vector<expert_key> keys_of(const std::vector<prefetch_request>& requests) {
  std::vector<expert_key> out;
  for (const auto& r : requests) out.push_back(r.key);
  return out;
}

}  // namespace hotset::support
