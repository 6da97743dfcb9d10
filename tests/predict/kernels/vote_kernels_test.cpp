// SPDX-License-Identifier: Apache-2.0
#include "hotset/predict/kernels/vote_kernels.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "hotset/predict/history/first_uses.hpp"
#include "hotset/predict/kernels/history_kernels.hpp"
#include "random_source.hpp"

namespace hotset::vote_kernels_test {
namespace {

using namespace vote_kernels;

TEST(vote_kernels, a_number_counts_the_votes_of_its_ballot) {
  const std::vector<std::uint64_t> near{std::uint64_t{1} << 3U | std::uint64_t{1} << 40U};
  const std::vector<std::uint64_t> later{std::uint64_t{1} << 40U | std::uint64_t{1} << 63U};
  const std::vector<std::uint64_t> none{0};
  first_uses uses(1, 2, 64, 7);
  uses.add(0, 0, near);
  uses.add(0, 0, later);
  for (int n = 0; n < 6; ++n) uses.add(0, 1, none);
  uses.add(0, 1, later);
  std::vector<ballot> ballots(2);
  for (std::size_t row = 0; row < 2; ++row) ballots[row].numbers = uses.of(0, row);
  const counts known_two{0.0F, 1.0F, 0.5F};
  const counts known_seven{0.0F, 9.0F, 9.0F, 9.0F, 9.0F, 9.0F, 9.0F, 0.25F};
  ballots[0].of_numbers = &known_two;
  ballots[0].weight = 2;
  ballots[1].of_numbers = &known_seven;
  ballots[1].weight = 1;
  std::vector<float> votes(64, 100.0F);
  count(ballots, false, votes, vector_level::scalar);
  EXPECT_EQ(votes[0], 0.0F) << "votes do not add up over calls";
  EXPECT_EQ(votes[3], 2.0F);
  EXPECT_EQ(votes[40], 2.25F) << "of one ballot the nearer use";
  EXPECT_EQ(votes[63], 1.25F);
}

TEST(vote_kernels, all_levels_count_alike_to_the_bit) {
  if (best_vector_level() == vector_level::scalar) GTEST_SKIP() << "no vectors on this processor";
  support::random_source random(1);
  for (const std::size_t experts : {1U, 64U, 100U, 128U, 300U})
    for (const std::size_t horizon : {1U, 7U, 8U, 15U})
      for (const std::size_t rows : {0U, 1U, 16U, 64U}) {
        first_uses uses(1, rows, experts, horizon);
        std::vector<ballot> ballots(rows);
        std::vector<counts> of_numbers(rows);
        for (std::size_t row = 0; row < rows; ++row) {
          std::vector<std::uint64_t> set((experts + 63) / 64);
          for (std::size_t token = 0; token < horizon; ++token) {
            std::ranges::fill(set, 0);
            for (int n = 0; n < 8; ++n) {
              const auto e = random.below(experts);
              set[e / 64] |= std::uint64_t{1} << (e % 64);
            }
            uses.add(0, row, set);
          }
          ballots[row].numbers = uses.of(0, row);
          for (std::size_t n = 1; n <= horizon; ++n)
            of_numbers[row][n] = static_cast<float>(random.below(1000)) / 7.0F;
          ballots[row].of_numbers = &of_numbers[row];
          ballots[row].weight = static_cast<float>(random.below(1000)) / 3.0F;
        }
        std::vector<float> one(uses.experts(), 0.3F);
        count(ballots, horizon > 7, one, vector_level::scalar);
        std::vector<float> other(uses.experts(), 0.7F);
        count(ballots, horizon > 7, other, best_vector_level());
        ASSERT_EQ(one, other) << experts << " experts, " << horizon << " tokens, " << rows;
      }
}

}  // namespace
}  // namespace hotset::vote_kernels_test
