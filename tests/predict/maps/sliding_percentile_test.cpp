// SPDX-License-Identifier: Apache-2.0
#include "hotset/predict/maps/sliding_percentile.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <deque>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "random_source.hpp"

namespace hotset::sliding_percentile_test {
namespace {

/// Sorts a copy of the last values.
class naive_percentile {
 public:
  explicit naive_percentile(std::size_t capacity) : capacity_(capacity) {}
  void push(float value) {
    values_.push_back(value);
    if (values_.size() > capacity_) values_.pop_front();
  }
  [[nodiscard]] float percentile(double q) const {
    std::vector<float> sorted(values_.begin(), values_.end());
    std::sort(sorted.begin(), sorted.end());
    return sorted[static_cast<std::size_t>(
        std::floor(q * static_cast<double>(sorted.size() - 1) / 100.0))];
  }
  /// Linear interpolation between neighbours, the default of array libraries.
  [[nodiscard]] double interpolated(double q) const {
    std::vector<float> sorted(values_.begin(), values_.end());
    std::sort(sorted.begin(), sorted.end());
    const double at = q * static_cast<double>(sorted.size() - 1) / 100.0;
    const auto low = static_cast<std::size_t>(std::floor(at));
    const auto high = std::min(low + 1, sorted.size() - 1);
    return sorted[low] + (at - std::floor(at)) * (double{sorted[high]} - sorted[low]);
  }
  template <class T>
  [[nodiscard]] std::size_t above(T threshold) const {
    return static_cast<std::size_t>(
        std::count_if(values_.begin(), values_.end(), [&](float v) { return T{v} > threshold; }));
  }

 private:
  std::size_t capacity_;
  std::deque<float> values_;
};

float uniform(support::random_source& random) {
  return static_cast<float>(random.below(1U << 24U)) * 0x1p-24F;
}
/// Small softmax scores, many equal; some zeros and some of any size.
float score(support::random_source& random) {
  switch (random.below(6)) {
    case 0: return 0.0F;
    case 1: return 0.0078125F + static_cast<float>(random.below(3)) * 1e-9F;
    case 2: return std::bit_cast<float>(static_cast<std::uint32_t>(random.below(0x7f800000U)));
    default: return uniform(random) * uniform(random) * uniform(random);
  }
}

TEST(sliding_percentile, is_0_without_values) {
  const sliding_percentile window(4);
  EXPECT_EQ(window.size(), 0U);
  EXPECT_EQ(window.capacity(), 4U);
  EXPECT_EQ(window.percentile(50), 0.0F);
}

TEST(sliding_percentile, takes_the_value_at_the_floor_of_the_place) {
  sliding_percentile window(5);
  for (const float v : {0.5F, 0.1F, 0.4F, 0.2F, 0.3F}) window.push(v);
  EXPECT_EQ(window.percentile(0), 0.1F);
  EXPECT_EQ(window.percentile(24.9), 0.1F);  // place 0.996
  EXPECT_EQ(window.percentile(25), 0.2F);
  EXPECT_EQ(window.percentile(60), 0.3F);  // place 2.4
  EXPECT_EQ(window.percentile(80), 0.4F);
  EXPECT_EQ(window.percentile(99.9), 0.4F);
  EXPECT_EQ(window.percentile(100), 0.5F);
}

TEST(sliding_percentile, minus_zero_is_zero) {
  sliding_percentile window(2);
  window.push(-0.0F);
  window.push(1.0F);
  EXPECT_EQ(window.percentile(0), 0.0F);
  EXPECT_FALSE(std::signbit(window.percentile(0)));
}

TEST(sliding_percentile, above_it_are_the_values_above_the_interpolated_one) {
  support::random_source random(8);
  for (int trial = 0; trial < 500; ++trial) {
    const auto capacity = 1 + random.below(90);
    naive_percentile all(capacity);
    sliding_percentile window(capacity);
    for (std::uint64_t n = random.below(200) + 1; n > 0; --n) {
      const auto value = static_cast<float>(random.below(50));  // with ties
      all.push(value);
      window.push(value);
    }
    const auto q = static_cast<double>(1 + random.below(99));
    ASSERT_EQ(all.above(window.percentile(q)), all.above(all.interpolated(q))) << "trial " << trial;
  }
}

TEST(sliding_percentile, agrees_with_sorting) {
  for (const std::size_t capacity : {1U, 2U, 7U, 64U, 500U, 3000U}) {
    support::random_source random(capacity);
    naive_percentile naive(capacity);
    sliding_percentile window(capacity);
    for (int n = 0; n < 4000; ++n) {
      // Some stretches of values that share a bin, as long as the window.
      const bool alike = n / 700 % 2 == 1;
      const float value = alike ? 0.0078125F * (1.0F + uniform(random) * 0.01F) : score(random);
      naive.push(value);
      window.push(value);
      ASSERT_EQ(window.size(), std::min<std::size_t>(capacity, static_cast<std::size_t>(n) + 1));
      if (capacity > 100 && n % 61 != 0) continue;
      const auto q = static_cast<double>(random.below(10001)) / 100.0;
      ASSERT_EQ(window.percentile(q), naive.percentile(q)) << capacity << " " << n << " " << q;
      ASSERT_EQ(window.percentile(80), naive.percentile(80)) << capacity << " " << n;
    }
  }
}

TEST(sliding_percentile, holds_the_extremes) {
  constexpr auto largest = std::numeric_limits<float>::max();
  constexpr auto smallest = std::numeric_limits<float>::denorm_min();
  sliding_percentile window(3);
  window.push(largest);
  window.push(smallest);
  window.push(0.0F);
  EXPECT_EQ(window.percentile(0), 0.0F);
  EXPECT_EQ(window.percentile(50), smallest);
  EXPECT_EQ(window.percentile(100), largest);
}

}  // namespace
}  // namespace hotset::sliding_percentile_test
