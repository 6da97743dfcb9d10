// SPDX-License-Identifier: Apache-2.0
#include "lab/traces/synthetic/integer_math.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "random_source.hpp"

namespace integer_math_test {
namespace {
using namespace hotset;
using namespace hotset::detail;

TEST(integer_math, logarithms_are_right_to_their_last_step) {
  EXPECT_EQ(ln_q18(1), 0);
  EXPECT_EQ(ln_q18(2), 181704);  // 0.693147 x 2^18, cut
  EXPECT_EQ(log2_q30(std::uint64_t{1} << 61U), std::uint64_t{61} << 30U);
  support::random_source random(5);
  for (int i = 0; i < 2000; ++i) {
    const auto n = (random.next() >> (2 + random.below(60))) | 1U;
    EXPECT_NEAR(static_cast<double>(ln_q18(n)) * 0x1p-18, std::log(static_cast<double>(n)), 0x1p-17)
        << n;
  }
}

void expect_root(std::uint64_t n) {
  const auto root = integer_sqrt(n);
  ASSERT_LE(root, 0xffffffffU);
  EXPECT_LE(root * root, n);
  EXPECT_LE(n - root * root, 2 * root) << n;
}

TEST(integer_math, roots_are_exact) {
  EXPECT_EQ(integer_sqrt(0), 0U);
  EXPECT_EQ(integer_sqrt(99), 9U);
  EXPECT_EQ(integer_sqrt(100), 10U);
  EXPECT_EQ(integer_sqrt(~std::uint64_t{0}), 0xffffffffU);
  support::random_source random(6);
  for (int i = 0; i < 2000; ++i) {
    const auto root = (random.next() >> (32 + random.below(32))) | 1U;
    for (const auto n : {root * root, root * root - 1, root * root + 2 * root}) expect_root(n);
    expect_root(random.next() >> random.below(64));
  }
}

TEST(integer_math, powers_of_a_half) {
  EXPECT_EQ(exp2_minus_q40(0), std::uint64_t{1} << 40U);
  EXPECT_EQ(exp2_minus_q40(std::uint64_t{3} << 30U), std::uint64_t{1} << 37U);
  EXPECT_EQ(exp2_minus_q40(std::uint64_t{40} << 30U), 1U);
  support::random_source random(7);
  for (int i = 0; i < 2000; ++i) {
    const auto x = random.below(std::uint64_t{20} << 30U);
    const auto wanted = std::exp2(40 - static_cast<double>(x) * 0x1p-30);
    EXPECT_NEAR(static_cast<double>(exp2_minus_q40(x)), wanted, wanted * 1e-7 + 1) << x;
  }
}

TEST(integer_math, a_softmax_by_hand) {
  constexpr auto one = std::uint64_t{1} << 40U;
  std::vector<std::uint64_t> masses(4);
  // 7, 7, 7 - ln 2 (a step too much) and far below.
  const std::vector<std::int64_t> logits{7 << 18, 7 << 18, (7 << 18) - 181705, -(90 << 18)};
  const auto total = softmax_masses(logits, masses);
  EXPECT_EQ(masses[0], one);
  EXPECT_EQ(masses[1], one);
  EXPECT_NEAR(static_cast<double>(masses[2]), static_cast<double>(one) / 2,
              static_cast<double>(one) * 0x1p-18);
  EXPECT_EQ(masses[3], 1U);
  EXPECT_EQ(total, std::accumulate(masses.begin(), masses.end(), std::uint64_t{0}));
  EXPECT_NEAR(share_of(masses[0], total), 0.4F, 1e-6F);
}

TEST(integer_math, no_lower_logit_has_more_mass) {
  std::vector<std::int64_t> logits(1U << 20U);
  std::vector<std::uint64_t> masses(logits.size());
  for (const std::int64_t step : {1, 7, 1000}) {
    for (std::size_t i = 0; i < logits.size(); ++i)
      logits[i] = 5 - step * static_cast<std::int64_t>(i);
    softmax_masses(logits, masses);
    EXPECT_TRUE(std::is_sorted(masses.begin(), masses.end(), std::greater<>())) << step;
  }
}

TEST(integer_math, products_are_rounded_to_nearest) {
  EXPECT_EQ(factor_q24(0.5), 1 << 23);
  EXPECT_EQ(product_q18(factor_q24(0.5), 3 << 24), 3 << 17);
  EXPECT_EQ(product_q18(factor_q24(1), 31), 0);
  EXPECT_EQ(product_q18(factor_q24(1), 32), 1);
  EXPECT_EQ(product_q18(factor_q24(1), -32), 0) << "halves go up";
  EXPECT_EQ(product_q18(factor_q24(1), -33), -1);
}

}  // namespace
}  // namespace integer_math_test
