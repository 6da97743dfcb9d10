// SPDX-License-Identifier: Apache-2.0
#include "hotset/predict/history/first_uses.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "random_source.hpp"

namespace hotset::first_uses_test {
namespace {

using experts_of_token = std::vector<std::size_t>;

std::vector<std::uint64_t> set_of(const experts_of_token& experts, std::size_t words) {
  std::vector<std::uint64_t> out(words);
  for (const auto e : experts) out[e / 64] |= std::uint64_t{1} << (e % 64);
  return out;
}
unsigned number(const first_uses& uses, std::size_t layer, std::size_t row, std::size_t expert) {
  return uses.of(layer, row)[first_uses::word_of(expert)] >> first_uses::shift_of(expert) & 15U;
}

TEST(first_uses, forgotten_uses_can_be_added_again) {
  first_uses uses(2, 3, 8, 7);
  for (int n = 0; n < 4; ++n) uses.add(1, 1, set_of({static_cast<std::size_t>(n)}, 1));
  uses.add(0, 1, set_of({5}, 1));
  uses.forget_beyond(1, 2);
  EXPECT_EQ(uses.known(1, 1), 2U);
  EXPECT_EQ(uses.known(0, 1), 1U) << "it was no further";
  uses.add(1, 1, set_of({2, 6}, 1));
  EXPECT_EQ(number(uses, 1, 1, 2), 3U);
  EXPECT_EQ(number(uses, 1, 1, 6), 3U);
  EXPECT_EQ(number(uses, 1, 1, 1), 2U);
}

TEST(first_uses, a_row_that_is_another_tokens_begins_with_nothing) {
  for (const std::size_t experts : {8U, 128U})
    for (const bool all : {false, true}) {
      const auto last = experts - 1;
      first_uses uses(1, 2, experts, 7);
      uses.add(0, 1, set_of({0, 1, last}, 2));
      all ? uses.forget_all() : uses.forget_beyond(1, 0);
      EXPECT_EQ(uses.known(0, 1), 0U);
      uses.add(0, 1, set_of({}, 2));
      uses.add(0, 1, set_of({1}, 2));
      EXPECT_EQ(number(uses, 0, 1, 0), 0U);
      EXPECT_EQ(number(uses, 0, 1, 1), 2U);
      EXPECT_EQ(number(uses, 0, 1, last), 0U);
    }
}

TEST(first_uses, numbers_of_random_tokens_agree_with_a_search) {
  support::random_source random(1);
  for (const std::size_t experts : {1U, 8U, 64U, 65U, 130U, 256U})
    for (const std::size_t horizon : {1U, 7U, 15U}) {
      const auto words = (experts + 127) / 128 * 2;  // as sets of routing_history
      first_uses uses(3, 5, experts, horizon);
      for (std::size_t layer = 0; layer < 3; ++layer)
        for (std::size_t row = 0; row < 5; ++row) {
          std::vector<experts_of_token> tokens(random.below(horizon + 1));
          for (auto& token : tokens) {
            const auto most = random.one_in(4) ? experts : 3;
            for (std::size_t n = 0; n < most; ++n) token.push_back(random.below(experts));
            uses.add(layer, row, set_of(token, words));
          }
          ASSERT_EQ(uses.known(layer, row), tokens.size());
          for (std::size_t e = 0; e < experts && !tokens.empty(); ++e) {
            unsigned expected = 0;
            for (auto t = tokens.size(); t-- > 0;)
              for (const auto used : tokens[t])
                if (used == e) expected = static_cast<unsigned>(t + 1);
            ASSERT_EQ(number(uses, layer, row, e), expected) << experts << " experts";
          }
        }
    }
}

TEST(first_uses, nothing_is_kept_without_lookahead) {
  const first_uses none(4, 256, 128, 0);
  EXPECT_EQ(none.horizon(), 0U);
}

}  // namespace
}  // namespace hotset::first_uses_test
