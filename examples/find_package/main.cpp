// SPDX-License-Identifier: Apache-2.0
// The smallest user of an installed hotset: a pager decides for each visit which experts to copy to which slots.
#include <cstdint>
#include <cstdio>
#include <vector>

#include "hotset/eviction/lfru.hpp"
#include "hotset/paging/pager.hpp"
#include "hotset/version.hpp"

int main() {
  std::printf("hotset %d.%d.%d\n", HOTSET_VERSION_MAJOR, HOTSET_VERSION_MINOR,
              HOTSET_VERSION_PATCH);

  const hotset::geometry shape{.layers = 2, .experts = 8, .top_k = 2};
  auto layout = hotset::pool_layout::shared(shape, 5);
  if (!layout) return 1;
  auto made = hotset::pager<hotset::lfru>::create({.layout = *layout});
  if (!made) return 1;
  auto& cache = *made;

  const std::vector<std::vector<std::int32_t>> routed{{0, 1}, {4, 5}, {0, 2},
                                                      {4, 5}, {0, 1}, {6, 5}};  // ids from a router
  auto plan = cache.make_plan();
  for (std::size_t i = 0; i < routed.size(); ++i) {
    hotset::routing_view visit;
    visit.step = i / 2;
    visit.layer = static_cast<hotset::layer_id>(i % 2);
    visit.experts = routed[i];
    if (cache.plan(visit, plan) != hotset::status::ok) return 1;
    for (const auto& fill : plan.fills())
      std::printf("step %d layer %d: copy expert %d into slot %d\n", static_cast<int>(visit.step),
                  number(visit.layer), number(fill.key.expert), number(fill.slot));
    if (cache.commit(plan) != hotset::status::ok) return 1;
  }
  std::printf("%d hits of %d\n", static_cast<int>(cache.stats().hits),
              static_cast<int>(cache.stats().accesses));
}
