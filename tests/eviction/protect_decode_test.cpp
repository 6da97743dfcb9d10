// SPDX-License-Identifier: Apache-2.0
#include "hotset/eviction/protect_decode.hpp"

#include <gtest/gtest.h>

#include "hotset/eviction/least_stale.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/eviction/protect_hot.hpp"
#include "reference_policies.hpp"

namespace hotset::protect_decode_test {
namespace {

using reference::hand_walk;
using reference::shared;
using support::slot_ids;

using calm_lru = protect_decode<lru>;
static_assert(eviction_policy<calm_lru>);
static_assert(eviction_policy<protect_hot<protect_decode<lru>>>);
static_assert(requires(protect_decode<least_stale> & p, const prefetch_event& e) {
  p.on_request(e);
});
static_assert(calm_lru::traits.wants_requests);

TEST(protect_decode, a_prefill_takes_other_slots_first) {
  hand_walk<calm_lru> w(shared(1, 4), {.window = 2});
  w.begin(0, 0);
  w.fill(0, {0_layer, 1_expert});
  w.begin(1, 0);
  w.fill(1, {0_layer, 2_expert});
  w.begin(2, 0, request_class::prefill);
  w.fill(2, {0_layer, 3_expert});
  EXPECT_EQ(w.order(3, 0, request_class::decode), slot_ids({0, 1, 2}));
  EXPECT_EQ(w.order(2, 0, request_class::prefill), slot_ids({2, 0, 1}));
  EXPECT_EQ(w.order(3, 0, request_class::prefill), slot_ids({0, 2, 1}));  // 0 was used 3 steps ago
  EXPECT_EQ(w.order(4, 0, request_class::prefill), slot_ids({0, 1, 2}));
}

}  // namespace
}  // namespace hotset::protect_decode_test
