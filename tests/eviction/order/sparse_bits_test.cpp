// SPDX-License-Identifier: Apache-2.0
#include "hotset/eviction/order/sparse_bits.hpp"

#include <cstdint>
#include <iterator>
#include <set>

#include <gtest/gtest.h>

namespace hotset::sparse_bits_test {
namespace {

TEST(sparse_bits, agrees_with_a_set) {
  for (const std::size_t size : {1U, 64U, 65U, 4096U, 9000U}) {
    sparse_bits bits(size);
    std::set<std::size_t> model;
    std::uint64_t random = size;
    const auto below = [&](std::size_t n) {
      random = random * 6364136223846793005U + 1442695040888963407U;
      return static_cast<std::size_t>(random >> 33U) % n;
    };
    for (int i = 0; i < 20000; ++i) {
      const auto n = below(size);
      if (below(3) == 0) {
        bits.set(n);
        model.insert(n);
      } else {
        bits.reset(n);
        model.erase(n);
      }
      const auto from = below(size);
      const auto end = from + below(size - from + 1);
      const auto found = model.lower_bound(from);
      ASSERT_EQ(bits.next(from, end), found == model.end() || *found >= end ? end : *found);
      const auto behind = model.lower_bound(end);
      const auto has_last = behind != model.begin() && *std::prev(behind) >= from;
      ASSERT_EQ(bits.last(from, end), has_last ? *std::prev(behind) : end);
    }
  }
}

}  // namespace
}  // namespace hotset::sparse_bits_test
