// SPDX-License-Identifier: Apache-2.0
// The package's core compiles, and decides.
#include "hotset/eviction/lru.hpp"
#include "hotset/paging/pager.hpp"

int main() {
  const auto layout = hotset::pool_layout::shared({.layers = 2, .experts = 8, .top_k = 2}, 6);
  if (!layout) return 1;
  auto pages = hotset::pager<hotset::lru>::create({.layout = *layout});
  if (!pages) return 1;
  auto plan = pages->make_plan();
  const hotset::expert_id ids[] = {1, 5};
  if (pages->plan({.layer = 0, .step = 0, .experts = ids}, plan) != hotset::status::ok) return 1;
  return plan.fills().size() == 2 && pages->commit(plan) == hotset::status::ok ? 0 : 1;
}
