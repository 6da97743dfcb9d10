// SPDX-License-Identifier: Apache-2.0
#include "hotset/eviction/order/slot_scores.hpp"

#include <algorithm>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "random_source.hpp"
#include "written_ids.hpp"

namespace hotset::slot_scores_test {
namespace {

constexpr geometry shape{.layers = 5, .experts = 60, .top_k = 2};

/// Three pools' worth of slots stand at any offset of the mask's words.
class slot_scores_of : public testing::Test {
 protected:
  slot_scores_of() {
    for (const auto s : each<slot_id>(layout.slots())) {
      now.score(s) = static_cast<double>(random.below(7));
      now.position(s) = ++clock;
      if (random.one_in(5)) now.score(s) = slot_scores::vacant;
      eligible.assign(s, !random.one_in(4));
    }
    for (int n = 0; n < 200; ++n)
      now.position(static_cast<slot_id>(random.below(layout.slots()))) = ++clock;
  }
  [[nodiscard]] std::vector<slot_id> sorted(pool_id pool) {
    std::vector<std::tuple<double, std::uint64_t, slot_id>> order;
    for (const auto slot : members.of(pool))
      if (eligible.test(slot) && now.score(slot) != slot_scores::vacant)
        order.emplace_back(now.score(slot), now.position(slot), slot);
    std::ranges::sort(order);
    std::vector<slot_id> out;
    for (const auto& entry : order) out.push_back(std::get<2>(entry));
    return out;
  }
  void expect_sorted() {
    for (const auto pool : each<pool_id>(layout.pools())) {
      const auto wanted = sorted(pool);
      for (const std::size_t room :
           {std::size_t{0}, std::size_t{1}, std::size_t{8}, layout.slots()}) {
        std::vector<slot_id> out(room, no_slot);
        out.resize(now.select(members, pool, eligible, out));
        ASSERT_EQ(out.size(), std::min(room, wanted.size()));
        ASSERT_TRUE(std::equal(out.begin(), out.end(), wanted.begin())) << "pool " << number(pool);
      }
    }
  }
  const pool_layout layout = pool_layout::per_layer(shape, 37).value();
  pool_members members{layout};
  slot_scores now{layout.slots()};
  slot_mask eligible{layout.slots()};
  support::random_source random{3};
  std::uint64_t clock = 0;
};

TEST_F(slot_scores_of, pools_as_they_were_built) { expect_sorted(); }

TEST_F(slot_scores_of, pools_whose_slots_have_gone_to_others) {
  for (const auto& [pool, slot] : {std::pair(0_pool, 180_slot), std::pair(0_pool, 40_slot),
                                   std::pair(3_pool, 0_slot), std::pair(4_pool, 37_slot)})
    members.settle(pool, slot, [](slot_id) { return false; });
  expect_sorted();
}

}  // namespace
}  // namespace hotset::slot_scores_test
