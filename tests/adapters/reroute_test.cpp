// SPDX-License-Identifier: Apache-2.0
#include "hotset/adapters/reroute.hpp"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reroute_samples.hpp"

namespace hotset {
namespace {

using reroute_samples::batch;
using testing::ElementsAre;

struct answer {
  std::vector<expert_id> out;
  reroute_result result;
};
answer reroute_of(const batch& b) {
  answer a{std::vector<expert_id>(b.ids.size(), -77), {}};
  a.result = reroute(b.rows(), b.ids, b.adapter_of_token, a.out);
  return a;
}

TEST(reroute, is_figure_4) {
  const auto a = reroute_of(reroute_samples::figure_4());
  EXPECT_EQ(a.result.code, status::ok);
  EXPECT_EQ(a.result.refused, 0U);
  EXPECT_EQ(a.out, reroute_samples::figure_4_rerouted());
}

TEST(reroute, works_in_place) {
  auto b = reroute_samples::figure_4();
  EXPECT_EQ(reroute(b.rows(), b.ids, b.adapter_of_token, b.ids).code, status::ok);
  EXPECT_EQ(b.ids, reroute_samples::figure_4_rerouted());
}

// Hazard 6: a negative id must not wrap, and one past the base model must not name an adapter's expert.
TEST(reroute, negative_ids_stay_and_what_is_out_of_range_becomes_no_expert) {
  auto b = reroute_samples::figure_4();
  b.tokens = 4;
  b.top_k = 3;
  b.adapter_of_token = {0, -1, 2, -5};
  b.ids = {-1, -9, 64,  //
           -1, 63, 65,  //
           -2, 3,  80,  //
           3,  14, 1000};
  const auto a = reroute_of(b);
  EXPECT_THAT(a.out, ElementsAre(-1, -9, -1,  //
                                 -1, 63, -1,  //
                                 -2, -1, -1,  //
                                 3, 14, -1));
  EXPECT_EQ(a.result.refused, 5U);
}

TEST(reroute, agrees_with_the_formula_on_random_batches) {
  support::random_source random(0x5eed);
  for (int round = 0; round < 3000; ++round) {
    const auto b = reroute_samples::random_batch(random);
    const auto a = reroute_of(b);
    ASSERT_EQ(a.result.code, status::ok);
    std::uint64_t refused = 0;
    for (std::size_t i = 0; i < b.ids.size(); ++i) {
      const auto id = b.ids[i];
      const auto adapter = b.adapter_of_token[i / static_cast<std::size_t>(b.top_k)];
      auto expected = id;
      if (id >= b.experts || (id >= 0 && adapter >= b.adapters)) {
        expected = -1;
        ++refused;
      } else if (id >= 0 && adapter >= 0) {
        expected = b.map.at(static_cast<std::size_t>(adapter * b.experts + id));
      }
      ASSERT_EQ(a.out[i], expected) << "round " << round << ", place " << i;
    }
    ASSERT_EQ(a.result.refused, refused) << "round " << round;
  }
}

TEST(reroute, an_empty_batch_is_one) {
  EXPECT_EQ(reroute({nullptr, 0, 4}, {}, {}, {}).code, status::ok);
}

TEST(reroute, lengths_that_do_not_belong_together_are_refused_and_nothing_is_written) {
  const std::vector<expert_id> ids{0, 1, 2, 3};
  std::vector<expert_id> out(4, -77);
  const redirect_rows none{nullptr, 0, 4};
  const std::vector<std::int32_t> adapters{-1, -1, -1};
  EXPECT_EQ(reroute(none, ids, adapters, out).code, status::invalid_argument);
  EXPECT_EQ(reroute(none, ids, {}, out).code, status::invalid_argument);
  EXPECT_EQ(reroute(none, ids, std::span(adapters).first(2), std::span(out).first(3)).code,
            status::invalid_argument);
  EXPECT_THAT(out, ElementsAre(-77, -77, -77, -77));
}

}  // namespace
}  // namespace hotset
