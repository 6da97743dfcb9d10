// SPDX-License-Identifier: Apache-2.0
#include "hotset/predict/vote_kernels.hpp"

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "hotset/predict/history_kernels.hpp"
#include "random_source.hpp"

namespace hotset {
namespace {

using namespace vote_kernels;

TEST(vote_kernels, the_first_set_of_an_expert_counts) {
  const std::vector<std::uint64_t> near{0b0110, 0};
  const std::vector<std::uint64_t> far{0b1100, 1};
  const std::vector<const std::uint64_t*> sets{near.data(), far.data()};
  set_weights weights{};
  weights[1] = 1.0F;
  weights[2] = 0.5F;
  std::vector<float> votes(128, 2.0F);
  add(sets, 2, weights, votes, vector_level::scalar);
  EXPECT_EQ(votes[0], 2.0F);
  EXPECT_EQ(votes[1], 3.0F);
  EXPECT_EQ(votes[2], 3.0F) << "in both: the nearer one";
  EXPECT_EQ(votes[3], 2.5F);
  EXPECT_EQ(votes[64], 2.5F);
}

TEST(vote_kernels, all_levels_give_the_same_bits) {
  if (history_kernels::level_in_use() == vector_level::scalar)
    GTEST_SKIP() << "no vectors on this processor";
  support::random_source random(1);
  for (const std::size_t words : {2U, 4U, 8U})
    for (std::size_t count = 0; count <= most_sets; ++count) {
      std::vector<std::vector<std::uint64_t>> bits(count, std::vector<std::uint64_t>(words));
      std::vector<const std::uint64_t*> sets;
      for (auto& set : bits) {
        for (int n = 0; n < 12; ++n)
          set[random.below(words)] |= std::uint64_t{1} << random.below(64);
        sets.push_back(set.data());
      }
      set_weights weights{};
      for (std::size_t i = 1; i < weights.size(); ++i)
        weights[i] = static_cast<float>(random.below(1000)) / 7.0F;
      std::vector<float> one(words * 64, 0.3F);
      auto other = one;
      add(sets, words, weights, one, vector_level::scalar);
      add(sets, words, weights, other, vector_level::avx2);
      ASSERT_EQ(one, other) << words << " words, " << count << " sets";
    }
}

}  // namespace
}  // namespace hotset
