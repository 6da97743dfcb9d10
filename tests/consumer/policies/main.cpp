// SPDX-License-Identifier: Apache-2.0
// An engine reads its policy from its settings.
#include <cstdio>

#include "hotset/registry/policy_registry.hpp"

int main() {
  const auto layout = hotset::pool_layout::shared({.layers = 2, .experts = 8, .top_k = 2}, 6);
  const auto eviction = hotset::policies().make_eviction("protect_hot:uses=2+lfru:decay=0.9");
  if (!layout || !eviction) return 1;
  const auto pages = hotset::erased_pager::create({.layout = *layout, .eviction = *eviction});
  if (!pages) return 1;
  const auto refused = hotset::policies().make_eviction("lfur");
  std::printf("%s\n", refused.error().message.c_str());
  return refused ? 1 : 0;
}
