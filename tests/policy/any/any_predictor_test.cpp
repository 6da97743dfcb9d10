// SPDX-License-Identifier: Apache-2.0
#include "hotset/policy/any/any_predictor.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/predict/co_activation.hpp"
#include "hotset/predict/expert_map.hpp"
#include "hotset/predict/gate_predictors.hpp"
#include "random_source.hpp"

namespace hotset::any_predictor_test {
namespace {

using testing::ElementsAreArray;
using testing::IsEmpty;

const geometry shape{.layers = 3, .experts = 4, .top_k = 2, .max_tokens_per_visit = 2};

any_predictor::config by_table(const co_activation::config& table) {
  return any_predictor::holding<co_activation>(table);
}

routing_view view_of(layer_id layer, step_id step, id_view<expert_id> ids,
                     std::span<const float> probabilities = {}) {
  routing_view view;
  view.layer = layer;
  view.step = step;
  view.experts = ids;
  view.probabilities = probabilities;
  return view;
}

TEST(any_predictor, a_held_gate_predicts_like_the_gate_itself) {
  const std::array<std::int32_t, 2> ids{0, 1};
  const std::array<float, 4> scores{0.4F, 0.3F, 0.2F, 0.1F};
  const std::array<float, 4> recorded{0.0F, 0.0F, 0.5F, 0.5F};
  auto current = any_predictor::create(shape, any_predictor::holding<current_gate>());
  auto told = any_predictor::create(shape, any_predictor::holding<recorded_scores>());
  ASSERT_TRUE(current && told);
  EXPECT_THAT(current->expect(view_of(0_layer, 0, ids, scores), recorded, 1).probabilities,
              ElementsAreArray(scores));
  EXPECT_THAT(told->expect(view_of(0_layer, 0, ids, scores), recorded, 1).probabilities,
              ElementsAreArray(recorded));
  EXPECT_THAT(told->expect(view_of(0_layer, 0, ids, scores)).probabilities, IsEmpty());
}

TEST(any_predictor, a_table_learns_each_visit_before_it_predicts) {
  auto any = any_predictor::create(shape, by_table({}));
  ASSERT_TRUE(any);
  auto table = co_activation::create(shape, {}).value();
  support::random_source random(5);
  for (step_id step = 0; step < 40; ++step)
    for (const auto layer : each<layer_id>(3)) {
      std::vector<std::int32_t> ids;
      for (int i = 0; i < (step % 3 == 0 ? 4 : 2); ++i) ids.push_back(random.id_below(4));
      const auto view = view_of(layer, step, ids);
      EXPECT_EQ(table.observe(view), status::ok);
      const auto wanted = table.predict(view);
      const auto found = any->expect(view);
      EXPECT_EQ(found.depth, 1);
      ASSERT_THAT(found.probabilities, ElementsAreArray(wanted.probabilities)) << step;
    }
  const std::array<std::int32_t, 2> ids{0, 1};
  EXPECT_GT(any->expect(view_of(0_layer, 99, ids)).probabilities[0], 0.0F);
}

TEST(any_predictor, an_engines_embeddings_reach_predictors_that_use_them) {
  const std::array<float, 6> table{1, 0, 0.9F, 0.1F, 0, 1};  // tokens 0 and 1 are equal
  const std::array<float, 4> to_last{0, 0, 0, 1}, to_first{1, 0, 0, 0};
  const std::array<std::int32_t, 2> ids{0, 1};
  auto chosen = any_predictor::holding<expert_map>({.depth = 1});
  EXPECT_TRUE(chosen.traits.takes_embeddings);
  EXPECT_FALSE(any_predictor::holding<current_gate>().traits.takes_embeddings);
  for (const bool has_table : {false, true}) {
    chosen.d_model = 2;
    if (has_table) chosen.embeddings = table;
    auto any = any_predictor::create(shape, chosen);
    ASSERT_TRUE(any);
    const auto step = [&](step_id at, std::int32_t token, std::span<const float> scores) {
      for (const auto layer : each<layer_id>(shape.layers)) {
        auto view = view_of(layer, at, ids, scores);
        view.token_ids = std::span(&token, 1);
        (void)any->expect(view);
      }
    };
    step(0, 0, to_last);
    step(1, 2, to_first);
    const std::int32_t unseen = 1;
    routing_view opening;
    opening.layer = before_layers;
    opening.step = 2;
    opening.token_ids = std::span(&unseen, 1);
    const auto found = any->expect(opening).probabilities;
    if (has_table)
      EXPECT_THAT(found, ElementsAreArray(to_last));
    else
      EXPECT_THAT(found, testing::Each(0.0F));
  }
  chosen.d_model = 4;  // not a whole number of tokens
  EXPECT_FALSE(any_predictor::create(shape, chosen));
}

TEST(any_predictor, looks_ahead_by_the_given_number_of_layers) {
  for (const any_predictor::config& chosen :
       {any_predictor::holding<current_gate>(), by_table({.reach = 2, .decay = 1})}) {
    auto deep = any_predictor::create(shape, with_depth(chosen, 2));
    ASSERT_TRUE(deep);
    const std::array<std::int32_t, 2> ids{0, 1};
    const std::array<float, 4> scores{0.4F, 0.3F, 0.2F, 0.1F};
    const auto found = deep->expect(view_of(0_layer, 0, ids, scores));
    EXPECT_EQ(found.depth, 2);
    EXPECT_EQ(found.probabilities.size(), 8U);
  }
}

TEST(any_predictor, knows_its_name_and_its_inputs) {
  const auto gate = any_predictor::holding<recorded_scores>();
  EXPECT_EQ(gate.name, "recorded");
  EXPECT_TRUE(gate.traits.needs_recorded);
  EXPECT_TRUE(any_predictor::holding<next_router>().traits.needs_routers);
  EXPECT_EQ(by_table({}).name, "co-activation");
}

TEST(any_predictor, routers_come_from_the_engine) {
  auto chosen = any_predictor::holding<next_router>();
  EXPECT_FALSE(chosen.validate());
  EXPECT_FALSE(any_predictor::create(shape, chosen));
  const std::vector<float> router(4 * 2, 0.5F);
  chosen.d_model = 2;
  chosen.routers.assign(3, router);
  EXPECT_TRUE(any_predictor::create(shape, chosen));
}

TEST(any_predictor, refuses_like_the_chosen_predictor) {
  const auto why = [](const any_predictor::config& chosen) {
    const auto made = any_predictor::create(shape, chosen);
    return made ? std::string("accepted") : made.error().message;
  };
  EXPECT_EQ(why(with_depth(any_predictor::holding<current_gate>(), 3)),
            "next_layer_gate depth = 3, accepted: 1..2 (layers - 1)");
  EXPECT_EQ(why(with_depth(by_table({.reach = 2}), 3)),
            "co_activation depth = 3, accepted: 1..2 (reach)");
  EXPECT_EQ(why(by_table({})), "accepted");
  EXPECT_EQ(why({}), "any_predictor factory = none, accepted: a factory");
}

/// Is notified of ended requests, and is asked before a step's first layer.
struct listener {
  struct config {
    std::int32_t depth = 1;
    std::vector<sequence_id>* heard = nullptr;
    [[nodiscard]] validation validate() const { return std::nullopt; }
  };
  static constexpr std::string_view name = "listener";
  static constexpr predictor_traits traits{.opens_steps = true, .wants_sequence_ends = true};
  static result<listener> create(const geometry&, const config& options) {
    return listener{options.heard};
  }
  forecast expect(const routing_view&, std::span<const float>, std::int32_t) noexcept { return {}; }
  void on_sequence_end(sequence_id sequence) noexcept { heard->push_back(sequence); }
  std::vector<sequence_id>* heard;
};
static_assert(predictor<listener>);

/// Its traits do not declare its hook, so it would never be called.
struct unheard : listener {
  static constexpr predictor_traits traits{};
  static result<unheard> create(const geometry&, const config&) { return unheard{}; }
};
static_assert(!predictor<unheard>);

TEST(any_predictor, notifies_predictors_with_the_hook_of_ended_requests) {
  std::vector<sequence_id> heard;
  auto any = any_predictor::create(shape, any_predictor::holding<listener>({.heard = &heard}));
  auto deaf = any_predictor::create(shape, any_predictor::holding<current_gate>());
  ASSERT_TRUE(any && deaf);
  EXPECT_TRUE(any->facts().opens_steps);
  EXPECT_FALSE(deaf->facts().opens_steps);
  any->on_sequence_end(7);
  deaf->on_sequence_end(8);
  EXPECT_THAT(heard, ElementsAreArray({7U}));
}

}  // namespace
}  // namespace hotset::any_predictor_test
