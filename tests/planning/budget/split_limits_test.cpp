// SPDX-License-Identifier: Apache-2.0
#include "hotset/planning/budget/split_limits.hpp"

#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

namespace hotset::split_limits_test {
namespace {

TEST(admission_floor, is_whole_blocks_for_every_session) {
  EXPECT_EQ((admission_floor{.concurrency = 4, .context = 8192, .block_tokens = 16}.blocks()),
            2048U);
  EXPECT_EQ((admission_floor{.concurrency = 3, .context = 17, .block_tokens = 16}.blocks()), 6U);
  EXPECT_EQ((admission_floor{.concurrency = 3, .context = 0}.blocks()), 0U);
  constexpr auto most = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ((admission_floor{.context = most, .block_tokens = 2}.blocks()), most / 2 + 1);
}

TEST(admission_floor, refuses_invalid_values) {
  constexpr auto most = std::numeric_limits<std::uint64_t>::max();
  EXPECT_FALSE((admission_floor{.concurrency = 1, .context = most, .block_tokens = 1}.validate()));
  EXPECT_EQ(admission_floor{.concurrency = 0}.validate()->message,
            "concurrency = 0, accepted: 1 or more");
  EXPECT_EQ((admission_floor{.context = 1, .block_tokens = 0}.validate()->message),
            "block_tokens = 0, accepted: 1 or more");
  EXPECT_TRUE((admission_floor{.concurrency = 2, .context = most, .block_tokens = 1}.validate()));
}

split_limits example() {
  return {.budget_bytes = 100,
          .slot_bytes = 10,
          .block_bytes = 3,
          .min_cap = 2,
          .max_cap = 8,
          .min_blocks = 5};
}

TEST(split_limits, a_cap_leaves_whole_blocks) {
  EXPECT_EQ(example().blocks_beside(2), 26U);
  EXPECT_EQ(example().blocks_beside(10), 0U);
  EXPECT_EQ(example().smallest_budget(), 35U);
  auto without_kv = example();
  without_kv.block_bytes = 0;
  EXPECT_EQ(without_kv.blocks_beside(2), 0U);
}

TEST(split_limits, the_largest_cap_leaves_the_floor) {
  EXPECT_EQ(example().largest_cap(), 8U);
  auto tight = example();
  tight.budget_bytes = 64;
  EXPECT_EQ(tight.largest_cap(), 4U);
  EXPECT_GE(tight.blocks_beside(4), 5U);
  EXPECT_LT(tight.budget_bytes - 50, 5 * 3U);
}

TEST(split_limits, refuses_invalid_values) {
  const auto why = [](auto change) {
    auto limits = example();
    change(limits);
    return limits.validate().value_or(error{"accepted"}).message;
  };
  EXPECT_EQ(why([](auto&) {}), "accepted");
  EXPECT_EQ(why([](auto& l) { l.slot_bytes = 0; }), "slot_bytes = 0, accepted: 1 or more");
  EXPECT_EQ(why([](auto& l) { l.min_cap = 0; }), "min_cap = 0, accepted: 1..8");
  EXPECT_EQ(why([](auto& l) { l.min_cap = 9; }), "min_cap = 9, accepted: 1..8");
  EXPECT_EQ(why([](auto& l) { l.budget_bytes = 34; }),
            "a budget of 34 bytes, accepted: 35 bytes or more (2 experts a layer and 5 KV blocks)");
  for (const bool of_caps : {false, true})
    EXPECT_EQ(why([&](auto& l) { (of_caps ? l.max_cap : l.min_blocks) = UINT64_MAX / 3; }),
              "floors and caps of 2^63 bytes or more, accepted: fewer");
}

}  // namespace
}  // namespace hotset::split_limits_test
