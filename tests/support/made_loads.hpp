// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Random steps whose experts are busy together, and costs by definition.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "hotset/core/numbers/splitmix64.hpp"
#include "hotset/placement/placement_shape.hpp"
#include "hotset/placement/step_loads.hpp"

namespace hotset_test {

/// Loads are multiples of `unit`, so that shares of replicas are whole. With `topics`, each step favours one of them:
/// the experts that leave the same remainder.
inline hotset::step_loads made_loads(std::int32_t experts, std::size_t steps, std::uint64_t seed,
                                     std::uint32_t unit = 1, std::int32_t topics = 3) {
  hotset::splitmix64 random(seed);
  std::vector<std::uint32_t> counts;
  for (std::size_t s = 0; s < steps; ++s) {
    const auto topic = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(topics)));
    for (std::int32_t e = 0; e < experts; ++e)
      counts.push_back(unit *
                       static_cast<std::uint32_t>(random.below(e % topics == topic ? 40 : 8)));
  }
  return hotset::step_loads::of(experts, std::move(counts)).value();
}

/// Loads of the ranks in a step.
inline std::vector<double> rank_loads_of(const hotset::placement_shape& shape,
                                         std::span<const hotset::expert_id> placed,
                                         std::span<const std::uint32_t> step) {
  const auto replicas = hotset::replicas_of(shape.experts, placed);
  std::vector<double> out(static_cast<std::size_t>(shape.ranks), 0);
  for (std::size_t slot = 0; slot < placed.size(); ++slot) {
    const auto e = hotset::index_of(placed[slot]);
    out[static_cast<std::size_t>(shape.rank_of(slot))] +=
        static_cast<double>(step[e]) / replicas[e];
  }
  return out;
}

/// Sum over the steps of twice the fullest rank's load plus the second fullest's.
inline double cost_of(const hotset::placement_shape& shape,
                      std::span<const hotset::expert_id> placed, const hotset::step_loads& loads) {
  double out = 0;
  for (std::size_t s = 0; s < loads.steps(); ++s) {
    auto ranks = rank_loads_of(shape, placed, loads.step(s));
    ranks.push_back(0);
    std::ranges::sort(ranks, std::greater{});
    out += 2 * ranks[0] + ranks[1];
  }
  return out;
}

}  // namespace hotset_test
