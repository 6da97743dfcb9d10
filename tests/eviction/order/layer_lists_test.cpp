// SPDX-License-Identifier: Apache-2.0
#include "hotset/eviction/order/layer_lists.hpp"

#include <cstdint>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace hotset::layer_lists_test {
namespace {

const geometry one{.layers = 3, .experts = 6, .top_k = 1};
const geometry three{.layers = 3,
                     .experts = 6,
                     .top_k = 1,
                     .max_tokens_per_visit = 1,
                     .expert_bytes = {9, 9, 8},
                     .lower_precisions = {{4}, {2}}};

std::vector<pool_layout> layouts() {
  const std::vector<std::int64_t> slots{3, 2, 4};
  return {pool_layout::shared(one, 5).value(), pool_layout::per_layer(one, 2).value(),
          pool_layout::shared_by_precision(three, slots).value(),
          pool_layout::per_layer_by_precision(three, slots).value()};
}

TEST(layer_lists, are_one_for_each_layer_and_precision) {
  for (const auto& layout : layouts()) {
    const layer_lists lists(layout);
    EXPECT_EQ(lists.count(), 3 * layout.precisions());
    std::set<std::size_t> all;
    for (const auto l : each<layer_id>(3))
      for (std::size_t p = 0; p < layout.precisions(); ++p) {
        const auto pool = layout.pool_of(l, static_cast<precision_id>(p));
        const auto list = lists.in_pool(l, pool);
        EXPECT_LT(list, lists.count());
        EXPECT_TRUE(all.insert(list).second) << "two share a list";
        EXPECT_EQ(lists.pool(list), pool);
      }
    EXPECT_EQ(all.size(), lists.count());
  }
}

TEST(layer_lists, a_slot_is_in_the_list_of_its_precision) {
  for (const auto& layout : layouts()) {
    const layer_lists lists(layout);
    for (const auto s : each<slot_id>(layout.slots()))
      for (const auto l : each<layer_id>(3)) {
        // A quota change may lend the slot to another layer's pool of the same precision.
        const auto precision = layout.at(layout.pool_of_slot(s)).precision;
        EXPECT_EQ(lists.of(l, s), lists.in_pool(l, layout.pool_of(l, precision)));
      }
  }
}

}  // namespace
}  // namespace hotset::layer_lists_test
