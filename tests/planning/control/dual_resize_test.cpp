// SPDX-License-Identifier: Apache-2.0
#include "hotset/planning/control/dual_resize.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

#include "random_source.hpp"

namespace hotset::dual_resize_test {
namespace {

dual_resize::config example() {
  return {.limits = {.budget_bytes = 1000,
                     .slot_bytes = 20,
                     .block_bytes = 3,
                     .min_cap = 4,
                     .max_cap = 40,
                     .min_blocks = 30},
          .headroom_percent = 10,
          .dead_zone = 1};
}

dual_resize law_of(const dual_resize::config& config) {
  return dual_resize::create(config).value();
}

// N* = ceil(1.1 * 100) = 110; C* = floor((1000 - 330) / 20) = 33; N* = floor(340 / 3) = 113.
TEST(dual_resize, gives_kv_its_peak_and_headroom_and_experts_the_rest) {
  EXPECT_EQ(law_of(example()).target(100), (pool_sizes{33, 113}));
}

TEST(dual_resize, never_goes_below_the_floors) {
  const auto law = law_of(example());
  EXPECT_EQ(law.target(0), (pool_sizes{40, 66}));     // all experts, and the rest to KV
  EXPECT_EQ(law.target(1000), (pool_sizes{4, 306}));  // the smallest cap
  EXPECT_EQ(law.target(std::numeric_limits<std::uint64_t>::max()), (pool_sizes{4, 306}));
}

// ceil(1.1 * 50) is 56 in doubles.
TEST(dual_resize, headroom_is_a_whole_percent) {
  auto config = example();
  config.limits.slot_bytes = 1;
  config.limits.block_bytes = 1;
  config.limits.max_cap = 1000;
  EXPECT_EQ(law_of(config).target(50), (pool_sizes{945, 55}));
}

// Hazard 23: noise from round to round must not move memory.
TEST(dual_resize, a_small_move_is_not_made) {
  auto config = example();
  config.dead_zone = 3;
  const auto law = law_of(config);
  const auto now = law.target(100);
  EXPECT_EQ(law.next(now, 100), now);
  EXPECT_EQ(law.next(now, 94), now);             // 34: inside the zone
  EXPECT_EQ(law.next(now, 60), law.target(60));  // 40
  EXPECT_EQ(law.next({36, 93}, 84), (pool_sizes{36, 93}));
  // Blocks that are needed justify any move.
  EXPECT_EQ(law.next({36, 93}, 90), law.target(90));
}

// WiSP, Table 6, with its own figures: Qwen3-30B-A3B at cap 36 with 3.65 GB of KV moves to cap 40 with 1.84 GB at
// once and stays. A slot in all layers is 452,984,832 bytes, a block of 16 tokens 1,572,864.
TEST(dual_resize, reclaims_idle_kv_in_one_move) {
  constexpr std::uint64_t slot = 452984832;
  constexpr std::uint64_t block = 98304 * 16;
  constexpr pool_sizes before{36, 2320};  // 37,120 tokens
  const auto law = [&](std::uint64_t headroom, std::uint64_t dead_zone) {
    return law_of({.limits = {.budget_bytes = before.cap * slot + before.blocks * block,
                              .slot_bytes = slot,
                              .block_bytes = block,
                              .min_cap = 8,
                              .max_cap = 128,
                              .min_blocks = 600},
                   .headroom_percent = headroom,
                   .dead_zone = dead_zone});
  };
  const auto after = law(25, 2).next(before, 800);
  EXPECT_EQ(after, (pool_sizes{40, 1168}));
  EXPECT_EQ(before.blocks * block, 3649044480U);
  EXPECT_EQ(after.blocks * block, 1837105152U);
  EXPECT_EQ(law(25, 2).next(after, 800), after);
  EXPECT_EQ(law(25, 2).next(after, 760), after);  // a little less: 41, inside the dead zone
  // Peaks, including headroom, that give the paper's cap: from 14,090 to 18,697 tokens.
  for (std::uint64_t peak = 600; peak < 2320; ++peak)
    EXPECT_EQ(law(0, 0).target(peak).cap == 40, peak >= 881 && peak <= 1168) << peak;
}

// Cached blocks that sessions reuse are not in use between two turns.
TEST(dual_resize, counts_reused_blocks_if_configured) {
  auto config = example();
  config.headroom_percent = 0;
  const auto plain = law_of(config);
  EXPECT_EQ(plain.target(100, 60), plain.target(100));
  config.count_reuse = true;
  const auto counting = law_of(config);
  EXPECT_TRUE(counting.counts_reuse());
  EXPECT_FALSE(plain.counts_reuse());
  EXPECT_EQ(counting.target(100, 60), plain.target(160));
  EXPECT_EQ(counting.target(100), plain.target(100));
  EXPECT_EQ(counting.next(plain.target(100), 100, 60), plain.target(160));
  constexpr auto most = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(counting.target(most - 1, most), plain.target(most));
}

TEST(dual_resize, conserves_the_budget) {
  support::random_source random(9);
  int accepted = 0;
  for (int n = 0; n < 5000; ++n) {
    const dual_resize::config config{.limits = {.budget_bytes = 50 + random.below(1000),
                                                .slot_bytes = 1 + random.below(40),
                                                .block_bytes = 1 + random.below(9),
                                                .min_cap = 1 + random.below(5),
                                                .max_cap = 5 + random.below(40),
                                                .min_blocks = random.below(60)},
                                     .headroom_percent = random.below(60)};
    const auto law = dual_resize::create(config);
    EXPECT_EQ(law.has_value(), config.limits.min_cap * config.limits.slot_bytes +
                                       config.limits.min_blocks * config.limits.block_bytes <=
                                   config.limits.budget_bytes);
    if (!law) continue;
    ++accepted;
    const auto peak = random.below(300);
    const auto to = law->target(peak);
    const auto bytes = to.cap * config.limits.slot_bytes + to.blocks * config.limits.block_bytes;
    EXPECT_LE(bytes, config.limits.budget_bytes);
    EXPECT_GE(to.cap, config.limits.min_cap);
    EXPECT_LE(to.cap, config.limits.max_cap);
    EXPECT_GE(to.blocks, config.limits.min_blocks);
    // No further block fits and, below full residency, no further slot.
    EXPECT_LT(config.limits.budget_bytes - bytes, config.limits.block_bytes);
    const auto wanted =
        std::max(config.limits.min_blocks, (peak * (100 + config.headroom_percent) + 99) / 100);
    const auto most =
        (config.limits.budget_bytes - config.limits.min_cap * config.limits.slot_bytes) /
        config.limits.block_bytes;
    EXPECT_GE(to.blocks, std::min(wanted, most));
    // Experts got all bytes that the wanted blocks leave: one slot more would take some of them.
    if (to.cap < config.limits.max_cap) {
      EXPECT_GT((to.cap + 1) * config.limits.slot_bytes +
                    std::min(wanted, most) * config.limits.block_bytes,
                config.limits.budget_bytes);
    }
  }
  EXPECT_GT(accepted, 2000);
}

TEST(dual_resize, refuses_a_budget_in_which_the_floors_do_not_fit) {
  auto config = example();
  config.limits.budget_bytes = 4 * 20 + 30 * 3 - 1;
  EXPECT_FALSE(dual_resize::create(config));
  config = example();
  config.limits.block_bytes = 0;
  EXPECT_EQ(config.validate()->message, "dual_resize block_bytes = 0, accepted: 1 or more");
  config = example();
  config.headroom_percent = 1001;
  EXPECT_EQ(config.validate()->message, "dual_resize headroom_percent = 1001, accepted: 0..1000");
}

}  // namespace
}  // namespace hotset::dual_resize_test
