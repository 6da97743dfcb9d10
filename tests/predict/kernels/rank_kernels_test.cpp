// SPDX-License-Identifier: Apache-2.0
#include "hotset/predict/kernels/rank_kernels.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "random_source.hpp"

namespace hotset::rank_kernels_test {

TEST(rank_kernels, ranks_are_places_in_descending_order) {
  support::random_source random(4);
  for (std::size_t n = 0; n <= 64; ++n) {
    std::vector<std::uint32_t> keys;
    while (keys.size() < n) {
      const auto key = static_cast<std::uint32_t>(random.below(std::uint64_t{1} << 32U));
      if (std::ranges::find(keys, key) == keys.end()) keys.push_back(key);
    }
    std::vector<std::uint32_t> one(n);
    std::vector<std::uint32_t> other(n);
    rank_kernels::rank(keys, one, vector_level::scalar);
    rank_kernels::rank(keys, other, best_vector_level());
    EXPECT_EQ(one, other);
    std::vector<std::uint32_t> sorted(n);
    for (std::size_t i = 0; i < n; ++i) sorted[one[i]] = keys[i];
    EXPECT_TRUE(std::ranges::is_sorted(sorted, std::greater<>()));
  }
}

}  // namespace hotset::rank_kernels_test
