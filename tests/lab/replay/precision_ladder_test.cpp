// SPDX-License-Identifier: Apache-2.0
#include "lab/replay/precision_ladder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/errors.hpp"
#include "sim_samples.hpp"

namespace hotset::precision_ladder_test {
namespace {

using lab::precision_ladder;
using support::refusal;
using testing::DoubleEq;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(precision_ladder, bits_fall_and_shares_are_even_unless_they_are_given) {
  const auto even = precision_ladder::parse("8:4");
  EXPECT_THAT(even.bits, ElementsAre(8, 4));
  EXPECT_THAT(even.shares, ElementsAre(DoubleEq(0.5), DoubleEq(0.5)));
  EXPECT_TRUE(even.several());
  const auto given = precision_ladder::parse("16:8:2@60:30:10");
  EXPECT_THAT(given.bits, ElementsAre(16, 8, 2));
  EXPECT_THAT(given.shares, ElementsAre(DoubleEq(0.6), DoubleEq(0.3), DoubleEq(0.1)));
  EXPECT_FALSE(precision_ladder::parse("16").several());
}

TEST(precision_ladder, invalid_values_are_refused_with_the_reason) {
  const auto reason = [](const char* text) {
    return refusal<lab::usage_error>([&] { (void)precision_ladder::parse(text); });
  };
  EXPECT_THAT(reason("4:8"), HasSubstr("8 does not fall"));
  EXPECT_THAT(reason("8:8"), HasSubstr("8 does not fall"));
  EXPECT_THAT(reason(""), HasSubstr("'' is no number"));
  EXPECT_THAT(reason("8:x"), HasSubstr("'x' is no number"));
  EXPECT_THAT(reason("65"), HasSubstr("65 bits"));
  EXPECT_THAT(reason("4.5"), HasSubstr("4.5 bits"));
  EXPECT_THAT(reason("8:4@50"), HasSubstr("1 shares for 2 precisions"));
  EXPECT_THAT(reason("8:4@50:60"), HasSubstr("110 % in all"));
  EXPECT_THAT(reason("8:4@100:0"), HasSubstr("a share of 0"));
  EXPECT_THAT(reason("9:8:7:6:5:4:3:2:1"), HasSubstr("9 precisions, at most 8"));
}

TEST(precision_ladder, bytes_are_in_proportion_to_the_bits) {
  geometry shape{.layers = 2, .experts = 4, .top_k = 2};
  shape.expert_bytes = {800, 400};
  const auto out = lab::with_precisions(shape, precision_ladder::parse("8:4:2"));
  EXPECT_EQ(out.precisions(), 3U);
  EXPECT_EQ(out.bytes_of(0_layer, 1_precision), 400U);
  EXPECT_EQ(out.bytes_of(1_layer, 2_precision), 100U);
  shape.expert_bytes.clear();
  EXPECT_THAT(refusal<lab::usage_error>(
                  [&] { (void)lab::with_precisions(shape, precision_ladder::parse("8:4")); }),
              HasSubstr("does not say how large an expert is"));
}

TEST(precision_ladder, the_room_of_a_layout_is_divided_by_bytes) {
  geometry shape{.layers = 2, .experts = 16, .top_k = 2};
  shape.expert_bytes = {800};
  const auto ladder = precision_ladder::parse("8:4@75:25");
  const auto all = lab::with_precisions(shape, ladder);
  const auto shared =
      lab::divide_by_precision(pool_layout::shared(shape, 8).value(), all, ladder.shares);
  EXPECT_EQ(shared.pools(), 2U);
  EXPECT_EQ(shared.at(0_pool).slots, 6);
  EXPECT_EQ(shared.at(1_pool).slots, 4) << "a quarter of 8 slots is 2 large ones, 4 small ones";
  const auto each =
      lab::divide_by_precision(pool_layout::per_layer(shape, 4).value(), all, ladder.shares);
  EXPECT_EQ(each.pools(), 4U);
  EXPECT_EQ(each.at(each.pool_of(1_layer, 0_precision)).slots, 3);
  EXPECT_EQ(each.at(each.pool_of(1_layer, 1_precision)).slots, 2);
  const auto small = pool_layout::shared(shape, 2).value();
  EXPECT_THROW((void)lab::divide_by_precision(small, all, std::vector<double>{0.1, 0.9}),
               lab::infeasible_error)
      << "no slot of the highest precision";
}

}  // namespace
}  // namespace hotset::precision_ladder_test
