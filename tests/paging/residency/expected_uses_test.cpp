// SPDX-License-Identifier: Apache-2.0
#include "hotset/paging/residency/expected_uses.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "random_source.hpp"

namespace hotset::expected_uses_test {
namespace {

const geometry shape{.layers = 4, .experts = 3, .top_k = 1};

visit_context at(step_id step, layer_id layer) {
  const visit_context context{.layer = layer, .step = step};
  return context;
}

TEST(expected_uses, the_last_step_of_all_can_be_forecast) {
  constexpr step_id last = ~step_id{0};
  expected_uses uses(shape);
  const std::vector<float> scores{.5F, .5F, .5F};
  uses.take(at(last, 0_layer), {.probabilities = scores, .depth = 1});
  EXPECT_TRUE(
      uses.sooner({1_layer, 0_expert}, {{2_layer, 1_expert}, last, .25F}, at(last, 0_layer)));
  EXPECT_FALSE(
      uses.sooner({1_layer, 0_expert}, {{2_layer, 1_expert}, last, .25F}, at(last, 1_layer)))
      << "its visit has come";
}

TEST(expected_uses, a_score_that_is_no_number_is_no_expectation) {
  expected_uses uses(shape);
  const std::vector<float> scores{std::numeric_limits<float>::quiet_NaN(), .5F, .5F};
  uses.take(at(7, 0_layer), {.probabilities = scores, .depth = 1});
  EXPECT_FALSE(uses.sooner({1_layer, 0_expert}, {{3_layer, 1_expert}, 7, .25F}, at(7, 0_layer)));
  EXPECT_TRUE(uses.sooner({1_layer, 1_expert}, {{3_layer, 1_expert}, 7, .25F}, at(7, 0_layer)));
}

TEST(expected_uses, agrees_with_a_naive_table) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    support::random_source random(seed);
    struct entry {
      bool known = false;
      step_id step = 0;
      std::vector<float> likely{};
    };
    std::vector<entry> table(4);
    expected_uses uses(shape);
    for (int n = 0; n < 200; ++n) {
      const auto now = at(random.below(4), layer_id{random.id_below(4)});
      const auto depth = 1 + random.below(3);
      const auto tokens = random.below(3);
      std::vector<float> scores(tokens * depth * 3);
      for (auto& x : scores) x = static_cast<float>(random.below(4)) / 4.0F;
      uses.take(now, {.probabilities = scores, .depth = static_cast<std::int32_t>(depth)});
      for (std::size_t d = 0; d < depth && tokens != 0; ++d) {
        const auto l = static_cast<std::size_t>(now.layer) + 1 + d;
        if (l >= 4) break;
        table[l] = {true, now.step, std::vector<float>(3, 0.0F)};
        for (std::size_t t = 0; t < tokens; ++t)
          for (std::size_t e = 0; e < 3; ++e)
            table[l].likely[e] = std::max(table[l].likely[e], scores[(t * depth + d) * 3 + e]);
      }
      const prefetch_request request{{layer_id{random.id_below(4)}, 0_expert},
                                     random.below(5),
                                     static_cast<float>(random.below(4)) / 4.0F};
      const auto asked = at(random.below(4), layer_id{random.id_below(4)});
      for (const auto l : each<layer_id>(4))
        for (const auto e : each<expert_id>(3)) {
          const auto& row = table[index_of(l)];
          const auto visit = std::pair(row.step, l);
          const bool expected = row.known && visit > std::pair(asked.step, asked.layer) &&
                                visit <= std::pair(request.for_step, request.key.layer) &&
                                row.likely[index_of(e)] >= request.probability;
          ASSERT_EQ(uses.sooner({l, e}, request, asked), expected);
        }
    }
  }
}

}  // namespace
}  // namespace hotset::expected_uses_test
