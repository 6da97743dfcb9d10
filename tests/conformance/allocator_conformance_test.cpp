// SPDX-License-Identifier: Apache-2.0
// Promises of every allocator.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "budget_samples.hpp"
#include "hotset/planning/budget/equimarginal.hpp"

namespace hotset::allocator_conformance_test {
namespace {

using testing::HasSubstr;

template <class Allocator>
class allocator_conformance : public testing::Test {
 protected:
  Allocator allocator;
};
using allocators = testing::Types<equimarginal>;
TYPED_TEST_SUITE(allocator_conformance, allocators);

TYPED_TEST(allocator_conformance, keeps_floors_caps_and_the_budget) {
  support::random_source random(1);
  for (int n = 0; n < 2000; ++n) {
    const auto set = support::random_consumers(
        random, {.consumers = 1 + random.below(5),
                 .unit_bytes = random.one_in(2) ? std::vector<std::uint64_t>{4}
                                                : std::vector<std::uint64_t>{1, 2, 3, 7},
                 .convex = random.one_in(2)});
    const auto total = support::floors_of(set.consumers) + random.below(60);
    const auto found = this->allocator.allocate(set.consumers, total);
    ASSERT_TRUE(found) << found.error().message;
    ASSERT_EQ(found->units.size(), set.consumers.size());
    std::uint64_t bytes = 0;
    double seconds = 0;
    for (std::size_t i = 0; i < set.consumers.size(); ++i) {
      const auto& c = set.consumers[i];
      EXPECT_GE(found->units[i], c.min_units);
      EXPECT_LE(found->units[i], c.cap());
      bytes += found->units[i] * c.unit_bytes;
      seconds += c.seconds(found->units[i]);
    }
    EXPECT_EQ(found->bytes, bytes);
    EXPECT_LE(bytes, total);
    EXPECT_DOUBLE_EQ(found->seconds, seconds);
    EXPECT_GE(found->seconds, found->bound - 1e-9);
  }
}

TYPED_TEST(allocator_conformance, more_bytes_are_never_slower_than_the_floors) {
  const sampled_miss_curve curve({9, 5, 2, 0});
  const std::vector<memory_consumer> two(
      2, {.curve = curve, .unit_bytes = 10, .seconds_per_miss = 1, .min_units = 1});
  double last = 100;
  for (const std::uint64_t bytes : {20U, 30U, 40U, 50U, 60U, 600U}) {
    const auto found = this->allocator.allocate(two, bytes);
    ASSERT_TRUE(found);
    EXPECT_LE(found->seconds, last) << bytes;
    last = found->seconds;
  }
  EXPECT_EQ(last, 0);
}

TYPED_TEST(allocator_conformance, of_no_consumer_is_empty) {
  const auto found = this->allocator.allocate({}, 100);
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->units.empty());
  EXPECT_EQ(found->bytes, 0U);
}

TYPED_TEST(allocator_conformance, refuses_invalid_values) {
  const sampled_miss_curve curve({9, 5, 2, 0});
  const memory_consumer good{
      .curve = curve, .unit_bytes = 10, .seconds_per_miss = 1, .min_units = 2};
  const auto why = [&](auto change, std::uint64_t bytes = 1000) {
    std::vector<memory_consumer> consumers(2, good);
    change(consumers[1]);
    const auto found = this->allocator.allocate(consumers, bytes);
    return found ? std::string("accepted") : found.error().message;
  };
  EXPECT_EQ(why([](auto&) {}), "accepted");
  EXPECT_EQ(why([](auto&) {}, 39),
            "a budget of 39 bytes, accepted: 40 bytes or more, the minimum of all consumers");
  EXPECT_EQ(why([](auto& c) { c.unit_bytes = 0; }),
            "consumer 1: unit_bytes = 0, accepted: 1 or more");
  EXPECT_THAT(why([](auto& c) { c.seconds_per_miss = -1; }),
              HasSubstr("consumer 1: seconds_per_miss = -1.000000, accepted: 0 or more"));
  EXPECT_THAT(why([](auto& c) { c.max_units = 1; }), HasSubstr("accepted: at most max_units"));
  EXPECT_THAT(why([](auto& c) {
                c.min_units = memory_consumer::no_limit / 2;
                c.unit_bytes = 4;
              }),
              HasSubstr("fewer than 2^64 bytes"));
}

}  // namespace
}  // namespace hotset::allocator_conformance_test
