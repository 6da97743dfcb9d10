// SPDX-License-Identifier: Apache-2.0
#include "hotset/planning/curve/decayed_histogram.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "random_source.hpp"

namespace hotset::decayed_histogram_test {
namespace {

TEST(decayed_histogram, older_bursts_count_less) {
  auto h = decayed_histogram::create({.slots = 4, .decay = 0.5}).value();
  for (const std::uint32_t d : {1U, 3U, 3U}) h.add(d);
  EXPECT_EQ(h.misses(0), 0);  // the burst has not ended
  h.end_burst();
  EXPECT_DOUBLE_EQ(h.misses(0), 3);
  EXPECT_DOUBLE_EQ(h.misses(1), 2);
  EXPECT_DOUBLE_EQ(h.misses(3), 0);
  h.add(4);
  h.end_burst();
  EXPECT_DOUBLE_EQ(h.misses(0), (0.5 * 3 + 1) / 1.5);
  EXPECT_DOUBLE_EQ(h.misses(2), (0.5 * 2 + 1) / 1.5);
  EXPECT_DOUBLE_EQ(h.misses(4), 0);
}

// Otherwise the pool with fewer observations would seem to need more.
TEST(decayed_histogram, first_uses_are_excluded_and_far_reuse_is_included) {
  auto h = decayed_histogram::create({.slots = 4}).value();
  h.add(0);
  h.add(9);
  h.end_burst();
  EXPECT_DOUBLE_EQ(h.misses(0), 1);
  EXPECT_DOUBLE_EQ(h.misses(4), 1);
  EXPECT_DOUBLE_EQ(h.misses(1000), 1);
  EXPECT_EQ(h.max_slots(), 4U);
}

TEST(decayed_histogram, agrees_with_the_rule_written_out) {
  support::random_source random(3);
  constexpr std::size_t slots = 20;
  auto h = decayed_histogram::create({.slots = slots, .decay = 0.8}).value();
  std::vector<double> naive(slots + 1, 0.0);
  double weight = 0;
  for (int burst = 0; burst < 30; ++burst) {
    for (auto& count : naive) count *= 0.8;
    weight = 0.8 * weight + 1;
    for (auto n = random.below(40); n > 0; --n) {
      const auto d = static_cast<std::uint32_t>(random.below(25));
      h.add(d);
      if (d > 0) ++naive[std::min<std::size_t>(d - 1, slots)];
    }
    h.end_burst();
    double tail = 0;
    for (std::size_t held = slots + 1; held-- > 0;) {
      tail += naive[held];
      ASSERT_NEAR(h.misses(held), tail / weight, 1e-9) << held << " slots";
    }
  }
}

TEST(decayed_histogram, a_wrong_configuration_is_refused) {
  const auto why = [](const decayed_histogram::config& c) { return c.validate()->message; };
  EXPECT_EQ(why({}), "decayed_histogram slots = 0, accepted: 1 or more");
  for (const double decay : {-0.1, 1.0, std::nan("")})
    EXPECT_TRUE((decayed_histogram::config{.slots = 1, .decay = decay}.validate())) << decay;
  EXPECT_FALSE(decayed_histogram::create({}));
}

}  // namespace
}  // namespace hotset::decayed_histogram_test
