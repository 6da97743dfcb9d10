// SPDX-License-Identifier: Apache-2.0
#include "lab/traces/synthetic/normal_draws.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace normal_draws_test {
namespace {
using namespace hotset;

std::vector<double> drawn(std::uint64_t seed, std::size_t n) {
  normal_draws draws(seed);
  std::vector<double> out(n);
  for (auto& x : out) x = static_cast<double>(draws.next()) * 0x1p-24;
  return out;
}

TEST(normal_draws, are_the_same_on_every_machine) {
  normal_draws draws(1);
  EXPECT_EQ(draws.next(), 7875759);
  EXPECT_EQ(draws.next(), -27498702);
  draws = normal_draws(1);
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (int i = 0; i < 4096; ++i)
    hash = (hash ^ static_cast<std::uint64_t>(draws.next())) * 0x100000001b3ULL;
  EXPECT_EQ(hash, 13506195280612543218ULL);
}

// Computes the same points with the C library's logarithm and square root.
TEST(normal_draws, equal_the_polar_method_with_library_functions) {
  const auto made = drawn(9, 20000);
  splitmix64 words(9);
  for (std::size_t i = 0; i < made.size(); i += 2) {
    double u = 0;
    double v = 0;
    do {
      const auto word = words.next();
      const auto coordinate = [&](unsigned first) {
        const auto bits = (word >> first) & 0x7fffffffU;
        return (static_cast<double>(bits) + 0.5) * 0x1p-30 - 1;
      };
      u = coordinate(33);
      v = coordinate(2);
    } while (u * u + v * v >= 1);
    const double s = u * u + v * v;
    const double factor = std::sqrt(-2 * std::log(s) / s);
    ASSERT_NEAR(made[i], u * factor, 1e-6) << i;
    ASSERT_NEAR(made[i + 1], v * factor, 1e-6) << i;
  }
}

TEST(normal_draws, are_normal_also_in_the_tails) {
  constexpr std::size_t n = 1U << 20U;
  auto made = drawn(3, n);
  std::sort(made.begin(), made.end());
  double farthest = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double below = std::erfc(-made[i] / std::sqrt(2.0)) / 2;
    farthest = std::max({farthest, std::abs(below - static_cast<double>(i) / n),
                         std::abs(below - static_cast<double>(i + 1) / n)});
  }
  EXPECT_LT(farthest * std::sqrt(static_cast<double>(n)), 1.95)
      << "Kolmogorov and Smirnov's, 0.1 %";
  const auto beyond = [&](double limit) {
    return static_cast<double>(
        std::count_if(made.begin(), made.end(), [&](double x) { return std::abs(x) > limit; }));
  };
  for (const double limit : {2.0, 3.0, 4.0}) {
    const double wanted = n * std::erfc(limit / std::sqrt(2.0));
    EXPECT_NEAR(beyond(limit), wanted, 5 * std::sqrt(wanted)) << limit;
  }
}

}  // namespace
}  // namespace normal_draws_test
