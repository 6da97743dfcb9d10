// SPDX-License-Identifier: Apache-2.0
#include "hotset/miss/drop.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "hotset/core/validate_for.hpp"

namespace hotset {
namespace {

static_assert(!drop::traits.is_exact && !drop::traits.fetches_all && !drop::traits.needs_logits);

const geometry shape{.layers = 1, .experts = 8, .top_k = 4};
using actions = std::vector<miss_action>;

actions ask(const drop& policy, const std::vector<miss>& misses) {
  std::vector<miss_decision> out(misses.size());
  policy.decide(misses, {}, {}, {}, out);
  actions taken;
  for (const auto& d : out) {
    EXPECT_EQ(d.precision, 0);
    taken.push_back(d.action);
  }
  return taken;
}
const std::vector<miss> ranked{{.expert = 3, .rank = 0},
                               {.expert = 5, .rank = 1},
                               {.expert = 1, .rank = 2},
                               {.expert = 0, .rank = 3}};

TEST(drop, the_first_two_ranks_are_fetched) {
  EXPECT_EQ(ask(drop(shape), ranked), (actions{miss_action::fetch, miss_action::fetch,
                                               miss_action::drop, miss_action::drop}));
}

TEST(drop, obeys_keep) {
  EXPECT_EQ(ask(drop(shape, {.keep = 1}), ranked),
            (actions{miss_action::fetch, miss_action::drop, miss_action::drop, miss_action::drop}));
  EXPECT_EQ(ask(drop(shape, {.keep = 100'000}), ranked), actions(4, miss_action::fetch));
}

TEST(drop, uses_what_is_held_whatever_its_rank) {
  EXPECT_EQ(
      ask(drop(shape), {{.expert = 3, .rank = 0, .held = 1}, {.expert = 4, .rank = 3, .held = 1}}),
      actions(2, miss_action::keep));
}

TEST(drop, keeps_at_least_one_rank) {
  EXPECT_FALSE(drop::config{}.validate());
  EXPECT_FALSE(validate_for(drop::config{}, shape));
  ASSERT_TRUE(drop::config{.keep = 0}.validate());
  EXPECT_EQ(drop::config{.keep = 0}.validate()->message, "drop keep = 0, accepted: 1 or more");
}

TEST(drop, prefetches_at_the_highest_precision) { EXPECT_EQ(drop(shape).prefetch_precision(), 0); }

}  // namespace
}  // namespace hotset
