// SPDX-License-Identifier: Apache-2.0
// Must not compile: routed ids are int32.
#include <cstdint>
#include <vector>

#include "hotset/core/routing_view.hpp"

void visit(const std::vector<std::int64_t>& ids) {
  const hotset::routing_view view{.experts = ids};
  (void)view;
}
