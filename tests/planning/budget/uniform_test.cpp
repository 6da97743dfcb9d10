// SPDX-License-Identifier: Apache-2.0
#include "hotset/planning/budget/uniform.hpp"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "budget_samples.hpp"

namespace hotset::uniform_test {
namespace {

TEST(uniform, is_the_largest_cap_that_fits) {
  support::random_source random(7);
  for (int n = 0; n < 3000; ++n) {
    const auto set = support::random_consumers(
        random, {.consumers = 1 + random.below(5), .unit_bytes = {1, 3, 8}});
    const auto total = support::floors_of(set.consumers) + random.below(70);
    const auto bytes_at = [&](std::uint64_t cap) {
      std::uint64_t bytes = 0;
      for (const auto& c : set.consumers)
        bytes += std::clamp(cap, c.min_units, c.cap()) * c.unit_bytes;
      return bytes;
    };
    std::uint64_t cap = 0;
    while (cap < 20 && bytes_at(cap + 1) <= total) ++cap;
    EXPECT_EQ(uniform().allocate(set.consumers, total)->bytes, bytes_at(cap)) << "case " << n;
  }
}

TEST(uniform, layers_of_equal_size_get_the_same) {
  const sampled_miss_curve curve(std::vector<double>(129, 1.0));
  const std::vector<memory_consumer> layers(
      48, {.curve = curve, .unit_bytes = 9437184, .seconds_per_miss = 1, .min_units = 8});
  const auto found = uniform().allocate(layers, std::uint64_t{36} * 452984832 + 1);
  EXPECT_THAT(found->units, testing::Each(36U));
}

}  // namespace
}  // namespace hotset::uniform_test
