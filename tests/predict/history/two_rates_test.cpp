// SPDX-License-Identifier: Apache-2.0
#include "hotset/predict/history/two_rates.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace hotset::two_rates_test {
namespace {

constexpr geometry shape{.layers = 2, .experts = 4, .top_k = 2};

TEST(two_rates, first_visits_are_a_mean_then_the_rates_decay) {
  two_rates rates(shape, {.fast_half_life = 1, .slow_half_life = 1000});
  const std::vector used{1_expert, 2_expert};
  EXPECT_FLOAT_EQ(rates.after(0_layer, used).fast[1], 0.5F);  // 1 / (n + 1), n = 1
  EXPECT_FLOAT_EQ(rates.after(0_layer, used).slow[1], 0.5F);
  EXPECT_EQ(rates.fast(0_layer)[1], 0.0F) << "it has not taken place";
  rates.visit(0_layer, used);
  rates.visit(0_layer, used);
  EXPECT_FLOAT_EQ(rates.fast(0_layer)[2], 0.75F);  // 1 - 2^-1 is more than 1/3
  EXPECT_FLOAT_EQ(rates.slow(0_layer)[2], 0.5F + 0.5F / 3);
  rates.visit(0_layer, std::vector{0_expert});
  EXPECT_FLOAT_EQ(rates.fast(0_layer)[2], 0.375F);
  EXPECT_FLOAT_EQ(rates.fast(0_layer)[0], 0.5F);
  EXPECT_EQ(rates.fast(1_layer)[2], 0.0F) << "another layer";
  EXPECT_FLOAT_EQ(rates.rate(1.0F, 0.5F), 0.4F + 0.6F * 0.5F);
}

TEST(two_rates, lookahead_gives_the_next_values_without_effect) {
  two_rates rates(shape, {});
  two_rates other(shape, {});
  for (const auto e : {0_expert, 1_expert, 3_expert, 1_expert}) {
    (void)rates.after(1_layer, std::vector{2_expert});
    (void)rates.after(0_layer, std::vector{3_expert});
    const auto [fast, slow] = rates.after(1_layer, std::vector{e});
    rates.keep(1_layer);
    other.visit(1_layer, std::vector{e});
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(rates.fast(1_layer)[i], fast[i]);
      EXPECT_EQ(rates.slow(1_layer)[i], slow[i]);
      for (const auto l : each<layer_id>(2)) {
        EXPECT_EQ(rates.fast(l)[i], other.fast(l)[i]);
        EXPECT_EQ(rates.slow(l)[i], other.slow(l)[i]);
      }
    }
  }
}

TEST(two_rates, parameters_out_of_range_are_refused) {
  EXPECT_EQ(two_rates::config{}.validate(), std::nullopt);
  EXPECT_TRUE((two_rates::config{.fast_half_life = 0}.validate()));
  EXPECT_TRUE((two_rates::config{.slow_half_life = std::nan("")}.validate()));
  EXPECT_TRUE((two_rates::config{.blend = -0.1}.validate()));
}

}  // namespace
}  // namespace hotset::two_rates_test
