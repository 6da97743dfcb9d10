// SPDX-License-Identifier: Apache-2.0
// Runs a policy of one's own through the pager, beside lru, on a cycle that is larger than the cache.
#include <array>
#include <cstdio>

#include "hotset/eviction/lru.hpp"
#include "hotset/paging/pager.hpp"
#include "most_recent.hpp"

namespace {

constexpr std::int32_t layers = 8;
constexpr std::int32_t top_k = 2;

// Every step routes the same experts: layers * top_k of them, in a cycle.
template <class Policy>
bool run(std::int32_t slots) {
  auto layout =
      hotset::pool_layout::shared({.layers = layers, .experts = 16, .top_k = top_k}, slots);
  if (!layout) return false;
  auto cache = hotset::pager<Policy>::create({.layout = *layout});
  if (!cache) return false;
  auto plan = cache->make_plan();
  for (hotset::step_id step = 0; step < 100; ++step)
    for (hotset::layer_id layer = 0; layer < layers; ++layer) {
      const std::array<hotset::expert_id, top_k> routed{layer, layer + 8};
      hotset::routing_view visit;
      visit.layer = layer;
      visit.step = step;
      visit.experts = routed;
      if (cache->plan(visit, plan) != hotset::status::ok) return false;
      if (cache->commit(plan) != hotset::status::ok) return false;
    }
  const auto& stats = cache->stats();
  std::printf("%-12s %2d slots for a cycle of %d experts: %4d hits of %d\n", Policy::name.data(),
              slots, layers * top_k, static_cast<int>(stats.hits),
              static_cast<int>(stats.accesses));
  return true;
}

}  // namespace

int main() {
  const bool ok = run<hotset::lru>(12) && run<most_recent>(12);
  return ok ? 0 : 1;
}
