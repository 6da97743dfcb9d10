// SPDX-License-Identifier: Apache-2.0
#include "hotset/residency/prefetch_requests.hpp"

#include <gtest/gtest.h>

namespace {

using namespace hotset;

TEST(prefetch_requests, a_later_request_replaces_an_earlier_one) {
  prefetch_requests requests(4);
  EXPECT_TRUE(requests.empty());
  requests.remember(2, 5);
  requests.remember(2, 7);
  EXPECT_EQ(requests.slots().size(), 1U);
  EXPECT_EQ(requests.meant_for(2), 8U);
  EXPECT_EQ(requests.meant_for(1), 0U);
}

TEST(prefetch_requests, are_over_when_their_visit_has_come) {
  prefetch_requests requests(4);
  requests.remember(0, 5);
  requests.remember(1, 6);
  requests.remember(2, 5);
  requests.settle(5, [](slot_id slot) { return slot != 2; });
  ASSERT_EQ(requests.slots().size(), 2U);
  EXPECT_EQ(requests.meant_for(0), 0U);
  EXPECT_EQ(requests.meant_for(1), 7U) << "meant for a later step";
  EXPECT_EQ(requests.meant_for(2), 6U) << "of another layer";
}

TEST(prefetch_requests, can_be_forgotten) {
  prefetch_requests requests(4);
  requests.remember(3, 0);
  requests.forget(3);
  requests.forget(1);
  EXPECT_TRUE(requests.empty());
  EXPECT_EQ(requests.meant_for(3), 0U);
}

}  // namespace
