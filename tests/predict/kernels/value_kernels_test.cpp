// SPDX-License-Identifier: Apache-2.0
#include "hotset/predict/kernels/value_kernels.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "random_source.hpp"

namespace hotset::value_kernels_test {
namespace {

std::vector<float> numbers(support::random_source& random, std::size_t count) {
  std::vector<float> out(count);
  for (auto& x : out) x = static_cast<float>(random.below(1U << 20U)) / 1048576.0F;
  return out;
}

TEST(value_kernels, votes_and_rates_are_shared) {
  std::vector<float> out(1);
  value_kernels::share(std::vector{3.0F}, std::vector{0.5F}, std::vector{0.25F}, {0.5F, 1.0F},
                       {2.0F, 0.5F}, 4.0F, out, vector_level::scalar);
  EXPECT_EQ(out[0], (3.0F + 2.0F * (0.25F + 0.25F)) * 0.5F + 4.0F * 0.5F);
  value_kernels::add(std::vector{4.0F}, 0.5F, out, vector_level::scalar);
  EXPECT_EQ(out[0], 6.0F);
}

TEST(value_kernels, all_levels_give_the_same_bits) {
  if (best_vector_level() == vector_level::scalar) GTEST_SKIP() << "no vectors on this processor";
  support::random_source random(1);
  for (const std::size_t n : {1U, 7U, 8U, 24U, 31U, 128U, 129U}) {
    const auto votes = numbers(random, n);
    const auto fast = numbers(random, n);
    const auto slow = numbers(random, n);
    std::vector<float> one(n);
    auto other = one;
    value_kernels::share(votes, fast, slow, {0.4F, 0.6F}, {1.7F, 0.31F}, 0.1F, one,
                         vector_level::scalar);
    value_kernels::share(votes, fast, slow, {0.4F, 0.6F}, {1.7F, 0.31F}, 0.1F, other,
                         vector_level::avx2);
    ASSERT_EQ(one, other);
    value_kernels::add(fast, 0.1F, one, vector_level::scalar);
    value_kernels::add(fast, 0.1F, other, vector_level::avx2);
    ASSERT_EQ(one, other);
    value_kernels::decay(fast, 0.29F, one, vector_level::scalar);
    value_kernels::decay(fast, 0.29F, other, vector_level::avx2);
    ASSERT_EQ(one, other);
  }
}

TEST(value_kernels, sums_whole_groups_and_the_rest) {
  support::random_source random(4);
  for (std::size_t n = 0; n < 40; ++n) {
    std::vector<float> a(n), b(n);
    double want = 0;
    for (std::size_t i = 0; i < n; ++i) {
      a[i] = static_cast<float>(random.below(64)) - 32.0F;  // small whole numbers: sums are exact
      b[i] = static_cast<float>(random.below(64)) - 32.0F;
      want += double{a[i]} * double{b[i]};
    }
    EXPECT_EQ(detail::dot(a.data(), b.data(), n), want) << n;
  }
}

TEST(value_kernels, adds_up_in_its_written_order) {
  // Lane 0 meets lane 4 before lane 1: 1e8 cancels before the ones are added.
  const std::vector<float> a{1e8F, 1, 0, 0, -1e8F, 1, 0, 0};
  const std::vector<float> ones(8, 1.0F);
  EXPECT_EQ(detail::dot(a.data(), ones.data(), 8), 2.0F);
  EXPECT_EQ(detail::sum(a.data(), 8), 2.0F);
}

}  // namespace
}  // namespace hotset::value_kernels_test
