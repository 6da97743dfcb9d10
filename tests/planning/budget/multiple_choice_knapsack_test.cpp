// SPDX-License-Identifier: Apache-2.0
#include "hotset/planning/budget/multiple_choice_knapsack.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "budget_samples.hpp"
#include "hotset/planning/budget/equimarginal.hpp"

namespace hotset::multiple_choice_knapsack_test {
namespace {

TEST(multiple_choice_knapsack, is_the_best_of_all_divisions) {
  support::random_source random(6);
  for (int n = 0; n < 3000; ++n) {
    const auto set = support::random_consumers(
        random, {.consumers = 1 + random.below(4),
                 .unit_bytes = random.one_in(2) ? std::vector<std::uint64_t>{2, 6, 10}
                                                : std::vector<std::uint64_t>{3, 5, 7},
                 .convex = random.one_in(3)});
    const auto total = support::floors_of(set.consumers) + random.below(80);
    const auto found = multiple_choice_knapsack().allocate(set.consumers, total);
    ASSERT_TRUE(found) << found.error().message;
    ASSERT_NEAR(found->seconds, support::best_seconds(set.consumers, total), 1e-9) << "case " << n;
    EXPECT_LE(equimarginal().allocate(set.consumers, total)->bound, found->seconds + 1e-9);
  }
}

// The greedy choice takes half a cliff; the exact one does not.
TEST(multiple_choice_knapsack, skips_a_cliff_that_it_cannot_afford) {
  const sampled_miss_curve cliff({12, 12, 12, 0});
  const sampled_miss_curve slope({6, 4, 2, 0});
  const std::vector<memory_consumer> consumers{
      {.curve = cliff, .unit_bytes = 1, .seconds_per_miss = 1},
      {.curve = slope, .unit_bytes = 1, .seconds_per_miss = 1}};
  EXPECT_THAT(multiple_choice_knapsack().allocate(consumers, 2)->units,
              testing::ElementsAre(0U, 2U));
  EXPECT_THAT(equimarginal().allocate(consumers, 2)->units, testing::ElementsAre(2U, 0U));
}

TEST(multiple_choice_knapsack, ties_take_the_fewest_units) {
  const sampled_miss_curve curve({5, 5, 5});
  const memory_consumer one{.curve = curve, .unit_bytes = 2, .seconds_per_miss = 1};
  EXPECT_THAT(multiple_choice_knapsack().allocate({&one, 1}, 100)->units, testing::ElementsAre(0U));
}

TEST(multiple_choice_knapsack, refuses_too_much_work) {
  const sampled_miss_curve curve({5, 4, 3});
  const std::vector<memory_consumer> consumers{
      {.curve = curve, .unit_bytes = 1000, .seconds_per_miss = 1},
      {.curve = curve, .unit_bytes = 999, .seconds_per_miss = 1}};
  const multiple_choice_knapsack small{.most_work = 100};
  EXPECT_EQ(small.allocate(consumers, 2500).error().message,
            "an exact division of 2500 granules of 1 bytes over 6 choices, accepted: a product of "
            "at most 100 (larger units, or equimarginal)");
  EXPECT_TRUE(multiple_choice_knapsack().allocate(consumers, 2500));
}

}  // namespace
}  // namespace hotset::multiple_choice_knapsack_test
