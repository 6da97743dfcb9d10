// SPDX-License-Identifier: Apache-2.0
#include "hotset/predict/history/routed_rows.hpp"

#include <cstddef>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace hotset::routed_rows_test {
namespace {

constexpr std::size_t layers = 3;
constexpr std::size_t rows = 256;

/// Each row's routed experts by layer, as sets.
using naive_rows = std::vector<std::vector<std::set<std::size_t>>>;

std::set<std::size_t> bits_of(std::span<const std::uint64_t> words) {
  std::set<std::size_t> out;
  for (std::size_t i = 0; i < words.size() * 64; ++i)
    if ((words[i / 64] >> (i % 64) & 1U) != 0) out.insert(i);
  return out;
}
void expect_sets(const routed_rows& of, const naive_rows& expected) {
  for (std::size_t l = 0; l < layers; ++l)
    for (std::size_t r = 0; r < rows; ++r)
      ASSERT_EQ(bits_of(of.set(l, static_cast<routed_rows::row_id>(r))), expected[l][r])
          << "layer " << l << ", row " << r;
}
void expect_planes(const routed_rows& of, std::size_t layer, std::size_t experts,
                   const naive_rows& expected) {
  for (std::size_t e = 0; e < experts; ++e) {
    std::set<std::size_t> who;
    for (std::size_t r = 0; r < rows; ++r)
      if (expected[layer][r].count(e) != 0) who.insert(r);
    ASSERT_EQ(bits_of({of.plane(layer, e), rows / 64}), who)
        << "layer " << layer << ", expert " << e;
  }
}

TEST(routed_rows, both_orders_have_the_same_bits_whatever_a_row_held_before) {
  for (const std::size_t experts : {5U, 64U, 130U}) {
    std::mt19937_64 random(experts);
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    routed_rows tried(layers, experts, rows);
    naive_rows expected(layers, std::vector<std::set<std::size_t>>(rows));
    for (int round = 0; round < 60; ++round) {
      for (std::size_t writes = below(60); writes > 0; --writes) {
        const auto l = below(layers);
        const auto row = static_cast<routed_rows::row_id>(below(rows));
        auto& now = expected[l][row];
        now.clear();
        if (below(8) == 0) {
          tried.clear(l, row);
          continue;
        }
        std::vector<expert_id> ids{no_expert, static_cast<expert_id>(experts)};
        for (std::size_t k = 0; k < 1 + below(4); ++k) {
          now.insert(below(experts));
          ids.push_back(static_cast<expert_id>(*now.rbegin()));
          for (const auto e : now) ids.push_back(static_cast<expert_id>(e));
        }
        tried.write(l, row, ids);
      }
      expect_sets(tried, expected);
      expect_planes(tried, below(layers), experts, expected);
      if (HasFatalFailure()) return;
    }
    tried.clear_all();
    for (std::size_t l = 0; l < layers; ++l)
      expect_planes(tried, l, experts,
                    naive_rows(layers, std::vector<std::set<std::size_t>>(rows)));
  }
}

}  // namespace
}  // namespace hotset::routed_rows_test
