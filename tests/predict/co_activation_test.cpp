// SPDX-License-Identifier: Apache-2.0
#include "hotset/predict/co_activation.hpp"

#include <cmath>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "predictor_samples.hpp"
#include "random_source.hpp"

namespace hotset::co_activation_test {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;

using support::view_of;

const geometry shape{.layers = 4, .experts = 5, .top_k = 2, .max_tokens_per_visit = 3};

std::vector<float> row_of(const forecast& f) { return support::row_at(f.probabilities, 0, 5); }

TEST(co_activation, counts_experts_that_fire_together) {
  auto table = co_activation::create(shape, {.reach = 1}).value();
  const std::vector<std::int32_t> first{0, 1};
  const std::vector<std::int32_t> then{2, 3};
  const std::vector<std::int32_t> other{2, 4};
  for (step_id step = 0; step < 4; ++step) {
    EXPECT_EQ(table.observe(view_of(0_layer, step, first)), status::ok);
    EXPECT_EQ(table.observe(view_of(1_layer, step, step < 3 ? then : other)), status::ok);
  }
  EXPECT_EQ(table.observe(view_of(0_layer, 9, first)), status::ok);
  // 0 and 1 fired five times; before 2 four times, before 3 three times, before 4 once.
  EXPECT_THAT(row_of(table.predict(view_of(0_layer, 9, first))),
              ElementsAre(0.0F, 0.0F, 0.8F, 0.6F, 0.2F));
  EXPECT_EQ(table.uses()[5 + 2], 4);
}

TEST(co_activation, nearer_layers_count_more) {
  auto table = co_activation::create(shape, {.reach = 2, .decay = 0.5}).value();
  const std::vector<std::int32_t> zero{0, 1};
  const std::vector<std::int32_t> one{2, 3};
  const std::vector<std::int32_t> two{4, 4};
  EXPECT_EQ(table.observe(view_of(0_layer, 0, zero)), status::ok);
  EXPECT_EQ(table.observe(view_of(2_layer, 0, two)), status::ok);  // layer 1 routed nothing
  EXPECT_EQ(table.observe(view_of(0_layer, 1, zero)), status::ok);
  EXPECT_EQ(table.observe(view_of(1_layer, 1, one)), status::ok);
  // From layer 0: 4 fired with both experts in one of two firings, counted twice. From layer 1: nothing is known.
  const auto row = row_of(table.predict(view_of(1_layer, 1, one)));
  EXPECT_FLOAT_EQ(row[4], 0.5F * 2 * (2.0F / 2) / (2 * 0.5F + 2 * 1.0F));
}

TEST(co_activation, another_step_begins_anew_and_the_last_layer_has_nothing_ahead) {
  auto table = co_activation::create(shape, {.reach = 1}).value();
  const std::vector<std::int32_t> ids{0, 1};
  EXPECT_EQ(table.observe(view_of(0_layer, 0, ids)), status::ok);
  EXPECT_EQ(table.observe(view_of(1_layer, 1, ids)), status::ok);  // not from the same pass
  EXPECT_THAT(row_of(table.predict(view_of(0_layer, 0, ids))), testing::Each(0.0F));
  EXPECT_EQ(table.observe(view_of(3_layer, 1, ids)), status::ok);
  EXPECT_THAT(row_of(table.predict(view_of(3_layer, 1, ids))), testing::Each(0.0F));
}

TEST(co_activation, absent_ids_count_nowhere) {
  auto table = co_activation::create(shape, {.reach = 1}).value();
  const std::vector<std::int32_t> some{0, -1};
  const std::vector<std::int32_t> wrong{7, 2};
  EXPECT_EQ(table.observe(view_of(0_layer, 0, some)), status::ok);
  EXPECT_EQ(table.observe(view_of(1_layer, 0, wrong)), status::ok);
  EXPECT_EQ(table.observe(view_of(0_layer, 1, some)), status::ok);
  EXPECT_THAT(row_of(table.predict(view_of(0_layer, 1, some))),
              ElementsAre(0.0F, 0.0F, 0.5F, 0.0F, 0.0F));
}

/// The rule with maps.
struct naive {
  std::map<std::tuple<int, int, int, int>, double> together;  // s, i, t, j
  std::map<std::pair<int, int>, double> fired;
  std::vector<std::vector<std::int32_t>> pass{4};

  void observe(int layer, const std::vector<std::int32_t>& ids) {
    pass[static_cast<std::size_t>(layer)] = ids;
    for (const auto i : ids) fired[{layer, i}] += 1;
    for (int s = std::max(0, layer - 3); s < layer; ++s)
      for (std::size_t t = 0; t < ids.size(); t += 2)
        for (std::size_t a = t; a < t + 2; ++a)
          for (std::size_t b = t; b < t + 2; ++b)
            together[{s, pass[static_cast<std::size_t>(s)][a], layer, ids[b]}] += 1;
  }
  double score(int layer, int target, std::size_t token, int j) {
    double sum = 0;
    double total = 0;
    for (int s = std::max(0, target - 3); s <= layer; ++s)
      for (std::size_t a = 2 * token; a < 2 * token + 2; ++a) {
        const auto i = pass[static_cast<std::size_t>(s)][a];
        const double weight = std::pow(0.7, target - s - 1);
        total += weight;
        sum += weight * together[{s, i, target, j}] / fired[{s, i}];
      }
    return sum / total;
  }
};

TEST(co_activation, agrees_with_the_rule_written_out) {
  support::random_source random(5);
  auto table = co_activation::create(shape, {.reach = 3, .depth = 2, .decay = 0.7}).value();
  naive model;
  for (step_id step = 0; step < 300; ++step) {
    const auto tokens = 1 + random.below(3);
    for (int layer = 0; layer < 4; ++layer) {
      std::vector<std::int32_t> ids(tokens * 2);
      for (auto& id : ids) id = random.id_below(5);
      EXPECT_EQ(table.observe(view_of(layer_id{layer}, step, ids)), status::ok);
      model.observe(layer, ids);
      const auto found = table.predict(view_of(layer_id{layer}, step, ids));
      ASSERT_EQ(found.depth, 2);
      for (std::size_t t = 0; t < tokens; ++t)
        for (int ahead = 1; ahead <= 2 && layer + ahead < 4; ++ahead)
          for (int j = 0; j < 5; ++j)
            ASSERT_NEAR(found.probabilities[(t * 2 + static_cast<std::size_t>(ahead) - 1) * 5 +
                                            static_cast<std::size_t>(j)],
                        model.score(layer, layer + ahead, t, j), 1e-5)
                << "step " << step << " layer " << layer;
    }
  }
}

TEST(co_activation, a_wrong_configuration_is_refused) {
  const auto why = [](const co_activation::config& c) { return c.validate()->message; };
  EXPECT_EQ(why({.reach = 0}), "co_activation reach = 0, accepted: 1 or more");
  EXPECT_EQ(why({.reach = 2, .depth = 3}), "co_activation depth = 3, accepted: 1..2 (reach)");
  EXPECT_THAT(why({.decay = 0}), HasSubstr("decay = 0.000000"));
  EXPECT_THAT(why({.decay = std::nan("")}), HasSubstr("decay = "));
  const geometry huge{.layers = 64, .experts = 8192, .top_k = 2};
  EXPECT_THAT(co_activation::create(huge, {}).error().message, HasSubstr("accepted: at most"));
}

// 4 x layers x reach x experts^2 is 2^64 here, and the sizes for visits wrap too.
TEST(co_activation, sizes_that_wrap_are_refused) {
  const auto why = [](const geometry& model, const co_activation::config& options) {
    return support::why(co_activation::create(model, options));
  };
  EXPECT_EQ(why({.layers = 1 << 12, .experts = 1 << 16, .top_k = 1}, {.reach = 1 << 18}),
            "a co_activation table of 4096 layers x 65536 experts, reach 262144, accepted: at most "
            "17179869184 bytes");
  EXPECT_THAT(why({.layers = 1, .experts = 70000, .top_k = 1}, {}),
              HasSubstr("70000 experts, reach 4, accepted"));
  EXPECT_EQ(why({.layers = 2, .experts = 4096, .top_k = 2, .max_tokens_per_visit = 1 << 24}, {}),
            "co_activation of 2 layers x 4096 experts needs 275146342400 bytes for visits of "
            "16777216 tokens, accepted: at most 17179869184");
}

// An array directly behind the ids would be read as experts.
TEST(co_activation, a_partial_token_is_refused_without_effect) {
  auto table = co_activation::create(shape, {.reach = 2}).value();
  const std::vector<std::int32_t> ids{0, 1, 2, 3, 4, 0, 1, 2};
  const auto first = [&](layer_id layer, std::size_t count) {
    return view_of(layer, 0, std::span(ids).first(count));
  };
  EXPECT_EQ(table.observe(first(0_layer, 4)), status::ok);
  auto untouched = table;
  for (const auto& [layer, count, why] : {std::tuple(1_layer, 3U, status::invalid_visit),
                                          std::tuple(1_layer, 1U, status::invalid_visit),
                                          std::tuple(layer_id{-1}, 2U, status::invalid_visit),
                                          std::tuple(4_layer, 2U, status::invalid_visit),
                                          std::tuple(1_layer, 8U, status::visit_too_large)}) {
    const auto view = first(layer, count);
    EXPECT_EQ(table.observe(view), why);
    EXPECT_TRUE(table.predict(view).probabilities.empty());
  }
  const auto next = first(1_layer, 4);
  for (auto* each : {&table, &untouched}) EXPECT_EQ(each->observe(next), status::ok);
  EXPECT_EQ(table.uses(), untouched.uses());
  EXPECT_THAT(table.predict(next).probabilities,
              ElementsAreArray(untouched.predict(next).probabilities));
  EXPECT_EQ(table.observe(first(2_layer, 0)), status::ok) << "no token";
}

}  // namespace
}  // namespace hotset::co_activation_test
