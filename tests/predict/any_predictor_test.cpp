// SPDX-License-Identifier: Apache-2.0
#include "hotset/predict/any_predictor.hpp"

#include <array>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "random_source.hpp"

namespace hotset {
namespace {

using testing::ElementsAreArray;
using testing::IsEmpty;

const geometry shape{.layers = 3, .experts = 4, .top_k = 2, .max_tokens_per_visit = 2};

any_predictor::config by_gate(gate_source source) {
  any_predictor::config out;
  out.gate.source = source;
  return out;
}
any_predictor::config by_table(const co_activation::config& table) {
  any_predictor::config out;
  out.table = table;
  return out;
}

routing_view view_of(layer_id layer, step_id step, std::span<const expert_id> ids,
                     std::span<const float> probabilities = {}) {
  routing_view view;
  view.layer = layer;
  view.step = step;
  view.experts = ids;
  view.probabilities = probabilities;
  return view;
}

TEST(any_predictor, a_gate_says_what_the_gate_itself_would) {
  const std::array<expert_id, 2> ids{0, 1};
  const std::array<float, 4> scores{0.4F, 0.3F, 0.2F, 0.1F};
  const std::array<float, 4> recorded{0.0F, 0.0F, 0.5F, 0.5F};
  auto current = any_predictor::create(shape, by_gate(gate_source::current_gate));
  auto told = any_predictor::create(shape, by_gate(gate_source::recorded));
  ASSERT_TRUE(current && told);
  EXPECT_THAT(current->expect(view_of(0, 0, ids, scores), recorded, 1).probabilities,
              ElementsAreArray(scores));
  EXPECT_THAT(told->expect(view_of(0, 0, ids, scores), recorded, 1).probabilities,
              ElementsAreArray(recorded));
  EXPECT_THAT(told->expect(view_of(0, 0, ids, scores)).probabilities, IsEmpty());
}

TEST(any_predictor, a_table_learns_each_visit_before_it_predicts) {
  auto any = any_predictor::create(shape, by_table({}));
  ASSERT_TRUE(any);
  co_activation table(shape, {});
  support::random_source random(5);
  for (step_id step = 0; step < 40; ++step)
    for (layer_id layer = 0; layer < 3; ++layer) {
      std::vector<expert_id> ids;
      for (int i = 0; i < (step % 3 == 0 ? 4 : 2); ++i) ids.push_back(random.id_below(4));
      const auto view = view_of(layer, step, ids);
      EXPECT_EQ(table.observe(view), status::ok);
      const auto wanted = table.predict(view);
      const auto found = any->expect(view);
      EXPECT_EQ(found.depth, 1);
      ASSERT_THAT(found.probabilities, ElementsAreArray(wanted.probabilities)) << step;
    }
  const std::array<expert_id, 2> ids{0, 1};
  EXPECT_GT(any->expect(view_of(0, 99, ids)).probabilities[0], 0.0F);
}

TEST(any_predictor, looks_as_far_ahead_as_it_is_told) {
  for (const any_predictor::config& chosen :
       {by_gate(gate_source::current_gate), by_table({.reach = 2, .decay = 1})}) {
    auto deep = any_predictor::create(shape, with_depth(chosen, 2));
    ASSERT_TRUE(deep);
    const std::array<expert_id, 2> ids{0, 1};
    const std::array<float, 4> scores{0.4F, 0.3F, 0.2F, 0.1F};
    const auto found = deep->expect(view_of(0, 0, ids, scores));
    EXPECT_EQ(found.depth, 2);
    EXPECT_EQ(found.probabilities.size(), 8U);
  }
}

TEST(any_predictor, knows_which_gate_it_goes_by) {
  const auto gate = by_gate(gate_source::recorded);
  EXPECT_TRUE(goes_by(gate, gate_source::recorded));
  EXPECT_FALSE(goes_by(gate, gate_source::current_gate));
  EXPECT_FALSE(goes_by(by_table({}), any_predictor::config{}.gate.source));
}

TEST(any_predictor, refuses_what_the_chosen_one_refuses) {
  const auto why = [](const any_predictor::config& chosen) {
    const auto made = any_predictor::create(shape, chosen);
    return made ? std::string("accepted") : made.reason().message;
  };
  EXPECT_EQ(why(with_depth({}, 3)), "next_layer_gate depth = 3, accepted: 1..2 (layers - 1)");
  EXPECT_EQ(why(with_depth(by_table({.reach = 2}), 3)),
            "co_activation depth = 3, accepted: 1..2 (reach)");
  EXPECT_EQ(why(by_table({})), "accepted");
}

}  // namespace
}  // namespace hotset
