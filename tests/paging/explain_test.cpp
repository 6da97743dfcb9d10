// SPDX-License-Identifier: Apache-2.0
#include "hotset/paging/explain.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/eviction/lru.hpp"
#include "hotset/paging/pager.hpp"
#include "random_source.hpp"

namespace hotset::explain_test {
namespace {

using testing::HasSubstr;

const geometry shape{.layers = 4, .experts = 16, .top_k = 2, .max_tokens_per_visit = 3};

struct visit {
  layer_id layer{};
  std::vector<std::int32_t> ids{};
  std::vector<float> weights{};
  request_class kind = request_class::decode;

  [[nodiscard]] routing_view view() const {
    const routing_view out{.layer = layer, .kind = kind, .experts = ids, .weights = weights};
    return out;
  }
};
std::string explain(const visit& of) { return explain_visit(of.view(), shape); }

TEST(explain_visit, names_the_array_its_numbers_and_the_accepted_range) {
  EXPECT_EQ(explain({4_layer, {0, 1}}), "layer 4, accepted: 0..3");
  EXPECT_EQ(explain({layer_id{-1}, {0, 1}}), "layer -1, accepted: 0..3");
  EXPECT_EQ(explain({.ids = {0, 1}, .kind = static_cast<request_class>(3)}),
            "kind 3, accepted: 0..2");
  EXPECT_EQ(explain({0_layer, std::vector<std::int32_t>(8)}),
            "experts: 8 ids, accepted: at most 6 (max_tokens_per_visit 3 * top_k 2)");
  EXPECT_EQ(explain({0_layer, {0, 1, 2}}),
            "experts: 3 ids, accepted: multiples of top_k = 2; pad with -1");
  EXPECT_EQ(explain({0_layer, {0, 1}, {0.5F}}),
            "weights: 1 numbers, accepted: 2, one per id, or none");
  EXPECT_EQ(explain({0_layer, {0, 1, -1, 16}}), "experts[3] = 16, accepted: 0..15, or -1 for none");
  EXPECT_EQ(explain({0_layer, {-2, 1}}), "experts[0] = -2, accepted: 0..15, or -1 for none");
}

TEST(explain_visit, has_no_words_for_a_view_that_fits) {
  EXPECT_EQ(explain({3_layer, {0, 15, -1, -1}, {0, 0, 0, 0}, request_class::verify}), "");
  EXPECT_EQ(explain({}), "");
}

// The messages and the status code check the same conditions.
TEST(explain_visit, has_a_message_for_exactly_the_refused_visits) {
  pager<lru> pages({.layout = pool_layout::shared(shape, 16).value(), .refuse_unknown_ids = true});
  auto plan = pages.make_plan();
  support::random_source random(7);
  std::size_t refused = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    visit one;
    one.layer = layer_id{static_cast<std::int32_t>(random.below(6)) - 1};
    one.kind = static_cast<request_class>(random.below(4));
    one.ids.resize(random.below(9));
    for (auto& id : one.ids) id = static_cast<std::int32_t>(random.below(19)) - 2;
    if (random.below(2) == 0) one.weights.resize(random.below(2) == 0 ? one.ids.size() : 3);
    const auto code = pages.plan(one.view(), plan);
    EXPECT_EQ(explain(one).empty(), code == status::ok) << explain(one) << describe(code);
    EXPECT_EQ(code == status::visit_too_large, explain(one).find("at most") != std::string::npos);
    EXPECT_TRUE(code != status::ok || pages.commit(plan) == status::ok);
    refused += code != status::ok ? 1U : 0U;
  }
  EXPECT_GT(refused, 200U);
  EXPECT_LT(refused, 1990U);
}

// Hazard 7: the warning names a pool with too few slots.
TEST(cliff_guard, names_the_pool_its_slots_and_the_number_that_escapes) {
  const geometry model{.layers = 30, .experts = 128, .top_k = 6};
  const auto warning = cliff_warning(pool_layout::shared(model, 174).value());
  ASSERT_TRUE(warning);
  EXPECT_THAT(*warning, HasSubstr("174 slots for 30 layers"));
  EXPECT_THAT(*warning, HasSubstr("use at least 175"));
  EXPECT_FALSE(cliff_warning(pool_layout::shared(model, 175).value()));
}

TEST(cliff_guard, pools_of_one_layer_have_no_cliff) {
  const geometry model{.layers = 3, .experts = 8, .top_k = 2};
  EXPECT_FALSE(cliff_warning(pool_layout::per_layer(model, 2).value()));
}

TEST(cliff_guard, every_size_class_is_looked_at) {
  const geometry model{.layers = 5, .experts = 8, .top_k = 2, .expert_bytes = {1, 1, 9, 9, 9}};
  const auto warning = cliff_warning(
      pool_layout::shared_by_size_class(model, std::array<std::int64_t, 2>{3, 4}).value());
  ASSERT_TRUE(warning);
  EXPECT_THAT(*warning, HasSubstr("pool 1"));
}

TEST(cliff_guard, slots_of_all_precisions_count) {
  const geometry model{.layers = 4,
                       .experts = 8,
                       .top_k = 2,
                       .max_tokens_per_visit = 1,
                       .expert_bytes = {8},
                       .layer_size_class = {},
                       .lower_precisions = {{4}}};
  const auto with = [&](std::int64_t high, std::int64_t low) {
    return cliff_warning(
        pool_layout::shared_by_precision(model, std::array<std::int64_t, 2>{high, low}).value());
  };
  EXPECT_FALSE(with(3, 4));
  ASSERT_TRUE(with(3, 3));
  EXPECT_THAT(*with(3, 3), HasSubstr("has 6 slots for 4 layers"));
}

}  // namespace
}  // namespace hotset::explain_test
