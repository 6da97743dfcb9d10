// SPDX-License-Identifier: Apache-2.0
#include "hotset/order/lowest_ranked.hpp"

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

/// Scores that are a multiple of 1, and estimates up to a fifth off.
struct estimates {
  explicit estimates(const std::vector<double>& of, support::random_source& random) : guessed(of) {
    for (auto& score : guessed) score += (static_cast<double>(random.below(401)) - 200.0) * 1e-3;
  }
  /// As far as numbers go: few places may have none that bounds them.
  static double bound(double least) { return least < 1e300 ? least + 0.4 + 1e-9 : infinite; }
  std::vector<double> guessed;
};

TEST(lowest_estimated, as_sorting_all_by_what_is_exact) {
  support::random_source random(2);
  for (std::size_t words = 1; words <= rank_rows::most / 64; ++words)
    for (const std::uint64_t kinds : {1U, 3U, 40U, 1000U})
      for (const auto level : levels())
        for (int n = 0; n < 60; ++n) {
          places all(words, kinds, random);
          const auto wanted = all.sorted(all.scores);
          estimates near(all.scores, random);
          std::vector<std::uint32_t> out(random.below(n % 4 == 0 ? words * 64 + 1 : 12));
          const auto size = std::min(out.size(), wanted.size());
          out.resize(lowest_estimated(
              {near.guessed.data(), all.positions.data()}, all.among, out, estimates::bound,
              [&](std::uint32_t place) { return all.scores[place]; }, level));
          ASSERT_EQ(out.size(), size);
          ASSERT_TRUE(std::equal(out.begin(), out.end(), wanted.begin()))
              << words << " words, " << kinds << " kinds of scores";
        }
}

TEST(lowest_estimated, asks_only_where_estimates_do_not_tell) {
  for (const auto level : levels()) {
    std::vector<double> scores(64, 100.0);
    std::vector<std::uint64_t> positions(64);
    std::iota(positions.begin(), positions.end(), std::uint64_t{1});
    std::vector<std::uint64_t> among(1, 0xffffU);
    for (std::size_t n = 0; n < 16; ++n) scores[n] = 10.0 * static_cast<double>(n);
    scores[3] = 20.1;  // beside place 2
    std::vector<std::uint32_t> asked;
    const auto exact = [&](std::uint32_t place) {
      asked.push_back(place);
      return place == 2 ? 20.0 : 19.9;
    };
    std::vector<std::uint32_t> out(2);
    auto left = among;
    EXPECT_EQ(lowest_estimated({scores.data(), positions.data()}, left, out, estimates::bound,
                               exact, level),
              2U);
    EXPECT_EQ(out, (std::vector<std::uint32_t>{0, 1}));
    EXPECT_TRUE(asked.empty());
    out.resize(5);
    left = among;
    EXPECT_EQ(lowest_estimated({scores.data(), positions.data()}, left, out, estimates::bound,
                               exact, level),
              5U);
    EXPECT_EQ(out, (std::vector<std::uint32_t>{0, 1, 3, 2, 4}));
    std::ranges::sort(asked);
    EXPECT_EQ(asked, (std::vector<std::uint32_t>{2, 3}));
    EXPECT_EQ(scores[3], 19.9) << "what was asked for is kept";
  }
}

}  // namespace
}  // namespace hotset::lowest_ranked_test
