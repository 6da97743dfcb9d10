// SPDX-License-Identifier: Apache-2.0
#include "hotset/policy/any/any_eviction_policy.hpp"

#include <gtest/gtest.h>

#include "hotset/eviction/fifo.hpp"
#include "hotset/eviction/least_stale.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/eviction/protect_hot.hpp"
#include "reference_policies.hpp"

namespace hotset::any_eviction_policy_test {
namespace {

using reference::hand_walk;
using reference::shared;
using support::slot_ids;

static_assert(eviction_policy<any_eviction_policy>);
static_assert(std::movable<any_eviction_policy> && !std::copyable<any_eviction_policy>);
static_assert(eviction_policy<protect_hot<any_eviction_policy>>);

TEST(any_eviction_policy, acts_like_the_held_policy) {
  hand_walk<any_eviction_policy> w(shared(1, 2), any_eviction_policy::holding<fifo>());
  EXPECT_EQ(w.policy.held_name(), "fifo");
  EXPECT_FALSE(w.policy.facts().needs_weights);
  w.begin(0, 0);
  w.fill(1, {0_layer, 4_expert});
  w.fill(0, {0_layer, 5_expert});
  w.hit(1);
  EXPECT_EQ(w.order(1, 0), slot_ids({1, 0}));
}

TEST(any_eviction_policy, takes_a_policy_that_exists_and_moves) {
  const auto layout = shared(1, 2);
  any_eviction_policy first{lru(layout)};
  any_eviction_policy second = std::move(first);
  EXPECT_FALSE(first.has_value());  // NOLINT(bugprone-use-after-move): that is the question
  EXPECT_EQ(second.held_name(), "lru");
}

TEST(any_eviction_policy, forwards_requests) {
  hand_walk<any_eviction_policy> w(shared(2, 2), any_eviction_policy::holding<least_stale>());
  w.begin(0, 0);
  w.fill(0, {0_layer, 4_expert});
  w.fill(1, {0_layer, 5_expert});
  w.begin(1, 0);
  w.request(0, 1);  // current again: stale ones are evicted first
  EXPECT_EQ(w.order(1, 0), slot_ids({1, 0}));
}

TEST(any_eviction_policy, checks_its_configuration) {
  ASSERT_TRUE(any_eviction_policy::config{}.validate());
  EXPECT_EQ(any_eviction_policy::config{}.validate()->message,
            "any_eviction_policy factory = none, accepted: a factory");
  EXPECT_FALSE(any_eviction_policy::holding<lru>().validate());
  EXPECT_TRUE(any_eviction_policy::holding<protect_hot<lru>>({.uses = 0}).validate());
}

}  // namespace
}  // namespace hotset::any_eviction_policy_test
