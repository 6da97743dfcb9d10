// SPDX-License-Identifier: Apache-2.0
#include "hotset/predict/prediction_score.hpp"

#include <map>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "random_source.hpp"
#include "written_ids.hpp"

namespace hotset::prediction_score_test {
namespace {

using support::key_of;

const geometry shape{.layers = 3, .experts = 8, .top_k = 2, .max_tokens_per_visit = 4};

struct judge {
  prediction_score score{shape};
  void ask(layer_id layer, expert_id expert, step_id step) {
    score.requested({{layer, expert}, step});
  }
  void visit(layer_id layer, step_id step, const support::routed_ids& ids) {
    score.routed({.layer = layer, .step = step, .experts = ids.ids});
  }
};
using counts = prediction_score::counts;

TEST(prediction_score, judges_a_visits_requests_at_the_visit) {
  judge j;
  j.ask(1_layer, 4_expert, 7);
  j.ask(1_layer, 5_expert, 7);
  j.ask(1_layer, 6_expert, 7);
  EXPECT_EQ(j.score.so_far(), counts{});
  j.visit(1_layer, 7, {5, 2});
  EXPECT_EQ(j.score.so_far(), (counts{.predicted = 3, .predicted_and_routed = 1, .routed = 2}));
}

TEST(prediction_score, requests_are_for_one_layer_and_one_step) {
  judge j;
  j.ask(1_layer, 4_expert, 7);
  j.visit(2_layer, 7, {4});
  EXPECT_EQ(j.score.so_far(), (counts{.routed = 1}));
  for (const step_id step : {5U, 6U, 9U}) j.visit(1_layer, step, {4});
  EXPECT_EQ(j.score.so_far(), (counts{.routed = 4}));
  j.visit(1_layer, 7, {4});
  EXPECT_EQ(j.score.so_far(), (counts{.predicted = 1, .predicted_and_routed = 1, .routed = 5}));
}

TEST(prediction_score, a_visit_is_judged_once) {
  judge j;
  j.ask(1_layer, 4_expert, 7);
  j.visit(1_layer, 7, {4});
  j.visit(1_layer, 7, {4});
  EXPECT_EQ(j.score.so_far(), (counts{.predicted = 1, .predicted_and_routed = 1, .routed = 2}));
  j.ask(1_layer, 5_expert, 7);  // too late for both
  j.visit(1_layer, 8, {5});
  EXPECT_EQ(j.score.so_far(), (counts{.predicted = 1, .predicted_and_routed = 1, .routed = 3}));
}

TEST(prediction_score, a_second_visit_of_a_step_has_requests_of_its_own) {
  judge j;
  j.ask(1_layer, 4_expert, 7);
  j.visit(1_layer, 7, {2});
  j.ask(1_layer, 5_expert, 7);
  j.visit(1_layer, 7, {4, 5});  // 4 was counted already
  EXPECT_EQ(j.score.so_far(), (counts{.predicted = 2, .predicted_and_routed = 1, .routed = 3}));
}

TEST(prediction_score, ignores_keys_outside_the_model) {
  judge j;
  for (const expert_key key : {key_of(-1, 0), key_of(3, 0), key_of(0, -1), key_of(0, 8)})
    j.score.requested({key, 7});
  for (const auto l : each<layer_id>(3)) j.visit(l, 7, {});
  EXPECT_EQ(j.score.so_far(), counts{});
}

TEST(prediction_score, agrees_with_sets) {
  support::random_source random(11);
  judge j;
  counts expected;
  std::map<std::pair<step_id, layer_id>, std::set<expert_id>> asked;
  for (step_id step = 0; step < 300; ++step)
    for (const auto layer : each<layer_id>(shape.layers)) {
      if (random.one_in(9)) continue;  // the visit is skipped
      std::vector<expert_id> ids(random.below(9));
      for (auto& id : ids) id = expert_id{random.id_below(10) - 1};
      std::set<expert_id> distinct;
      for (const auto id : ids)
        if (id >= 0 && id < shape.experts) distinct.insert(id);
      const auto& wanted = asked[{step, layer}];
      expected.predicted += wanted.size();
      expected.routed += distinct.size();
      for (const auto e : wanted) expected.predicted_and_routed += distinct.count(e);
      j.visit(layer, step, ids);
      ASSERT_EQ(j.score.so_far().predicted, expected.predicted) << step << " " << layer;
      ASSERT_EQ(j.score.so_far(), expected) << step << " " << layer;
      for (std::uint64_t n = random.below(6); n > 0; --n) {
        // A request for a later layer of this step or any layer of the next one.
        const bool next = random.one_in(3) || layer + 1 == shape.layers;
        const auto first = next ? 0_layer : layer + 1;
        const auto to = first + random.id_below(shape.layers - number(first));
        const auto expert = expert_id{random.id_below(shape.experts)};
        asked[{step + (next ? 1U : 0U), to}].insert(expert);
        j.ask(to, expert, step + (next ? 1U : 0U));
      }
    }
  EXPECT_GT(expected.predicted_and_routed, 50U);
}

}  // namespace
}  // namespace hotset::prediction_score_test
