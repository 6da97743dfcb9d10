// SPDX-License-Identifier: Apache-2.0
#include "hotset/eviction/order/lowest_ranked.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "random_source.hpp"

namespace hotset::lowest_ranked_test {
namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

std::vector<vector_level> levels() {
  std::vector<vector_level> out{vector_level::scalar};
  for (const auto level : {vector_level::avx2, vector_level::avx512})
    if (level <= best_vector_level()) out.push_back(level);
  return out;
}

/// Places with scores of `kinds` values, about a tenth of them infinite, and distinct positions in any order.
struct places {
  places(std::size_t words, std::uint64_t kinds, support::random_source& random)
      : scores(words * 64), positions(words * 64), among(words, 0) {
    std::iota(positions.begin(), positions.end(), std::uint64_t{1});
    for (std::size_t n = 0; n < scores.size(); ++n) {
      scores[n] = random.one_in(10) ? infinite : static_cast<double>(random.below(kinds)) - 2.0;
      std::swap(positions[n], positions[random.below(positions.size())]);
      if (!random.one_in(4)) among[n / 64] |= std::uint64_t{1} << n % 64;
    }
    // Clocks go on: what is large is compared as exactly as what is small.
    if (random.one_in(2))
      for (auto& p : positions) p += (std::uint64_t{1} << 52U) - 1 - positions.size();
  }
  [[nodiscard]] std::vector<std::uint32_t> sorted(const std::vector<double>& by) const {
    std::vector<std::tuple<double, std::uint64_t, std::uint32_t>> order;
    for (std::uint32_t n = 0; n < by.size(); ++n)
      if ((among[n / 64] >> n % 64 & 1U) != 0 && by[n] < infinite)
        order.emplace_back(by[n], positions[n], n);
    std::ranges::sort(order);
    std::vector<std::uint32_t> out;
    for (const auto& entry : order) out.push_back(std::get<2>(entry));
    return out;
  }
  std::vector<double> scores;
  std::vector<std::uint64_t> positions;
  std::vector<std::uint64_t> among;
};

TEST(lowest_ranked, as_sorting_all) {
  support::random_source random(1);
  for (std::size_t words = 1; words <= rank_rows::most / 64; ++words)
    for (const std::uint64_t kinds : {1U, 2U, 5U, 1000U})
      for (const auto level : levels())
        for (int n = 0; n < 60; ++n) {
          places all(words, kinds, random);
          const auto wanted = all.sorted(all.scores);
          std::vector<std::uint32_t> out(random.below(n % 4 == 0 ? words * 64 + 1 : 12));
          const auto size = std::min(out.size(), wanted.size());
          out.resize(
              lowest_ranked({all.scores.data(), all.positions.data()}, all.among, out, level));
          ASSERT_EQ(out.size(), size);
          ASSERT_TRUE(std::equal(out.begin(), out.end(), wanted.begin()))
              << words << " words, " << kinds << " kinds of scores";
        }
}

TEST(lowest_ranked, names_nothing_where_nothing_may_be_named) {
  for (const auto level : levels()) {
    std::vector<double> scores(64, infinite);
    const std::vector<std::uint64_t> positions(64, 1);
    std::vector<std::uint64_t> among(1, ~std::uint64_t{0});
    std::vector<std::uint32_t> out(3);
    EXPECT_EQ(lowest_ranked({scores.data(), positions.data()}, among, out, level), 0U);
    scores.assign(64, 0.0);
    among.assign(1, 0);
    EXPECT_EQ(lowest_ranked({scores.data(), positions.data()}, among, out, level), 0U);
  }
}

}  // namespace
}  // namespace hotset::lowest_ranked_test
