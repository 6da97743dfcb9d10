// SPDX-License-Identifier: Apache-2.0
#include "hotset/eviction/activation_ratio.hpp"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "naive_policies.hpp"
#include "random_source.hpp"
#include "single_uses.hpp"

namespace hotset::activation_ratio_test {
namespace {

using testing::ElementsAre;
using slots = std::vector<slot_id>;

const geometry shape{.layers = 2, .experts = 4, .top_k = 2, .max_tokens_per_visit = 4};

/// Experts 0, 1 and 2 of layer 0 in slots 0, 1 and 2; expert 0 of layer 1 in slot 3. Nothing has been routed yet.
class ratio_of_a_request : public testing::Test {
 protected:
  explicit ratio_of_a_request(const activation_ratio::config& options = {})
      : policy(layout, options) {
    for (const auto s : each<slot_id>(4)) {
      expert_use a;
      a.key = s < 3 ? expert_key{0_layer, expert_id{number(s)}} : expert_key{1_layer, 0_expert};
      a.slot = s;
      support::bring(policy, a);
      eligible.set(s);
    }
  }
  const pool_layout layout = pool_layout::shared(shape, 4).value();
  activation_ratio policy;
  slot_mask eligible{layout.slots()};

  void plan(step_id step, layer_id layer, const std::vector<std::int32_t>& ids,
            const std::vector<sequence_id>& sequences = {},
            const std::vector<std::int32_t>& choice = {}) {
    routing_view view;
    view.layer = layer;
    view.step = step;
    view.experts = ids;
    view.router_choice = choice;
    view.sequences = sequences;
    policy.on_routed(view);
  }
  void visit(step_id step, layer_id layer, const std::vector<std::int32_t>& ids,
             const std::vector<sequence_id>& sequences = {}) {
    plan(step, layer, ids, sequences);
    support::begin_visit(policy, step, layer);
  }
  void open(step_id step, const std::vector<sequence_id>& sequences) {
    plan(step, before_layers, {}, sequences);
  }
  void use(slot_id slot) {
    expert_use a;
    a.key = {0_layer, expert_id{number(slot)}};
    a.slot = slot;
    support::hit(policy, a);
  }
  slots order() {
    slots out(4);
    out.resize(policy.select_victims({}, eligible, out));
    return out;
  }
};
class ratio_with_room_for_two : public ratio_of_a_request {
 protected:
  ratio_with_room_for_two() : ratio_of_a_request({.requests = 2}) {}
};

TEST_F(ratio_of_a_request, a_share_of_its_layer_decides) {
  EXPECT_THAT(order(), ElementsAre(0, 1, 2, 3)) << "nothing was routed: recency";
  visit(0, 0_layer, {0, 1});
  visit(1, 0_layer, {0, 3});
  // Layer 0: 2/4, 1/4, 0; layer 1: nothing.
  EXPECT_THAT(order(), ElementsAre(2, 3, 1, 0));
  visit(1, 1_layer, {0, 1});
  visit(2, 1_layer, {2, 3});
  // Layer 1: 1/4, as expert 1 of layer 0, and more recent.
  EXPECT_THAT(order(), ElementsAre(2, 1, 3, 0));
  visit(3, 1_layer, {1, 2});
  EXPECT_THAT(order(), ElementsAre(2, 3, 1, 0)) << "1/6 now";
}

TEST_F(ratio_of_a_request, an_aborted_visit_has_no_effect) {
  plan(0, 0_layer, {2, 3});
  plan(0, 0_layer, {0, 1});  // planned a second time
  EXPECT_THAT(order(), ElementsAre(0, 1, 2, 3));
  support::begin_visit(policy, 0, 0_layer);
  support::begin_visit(policy, 0, 0_layer);  // a later group
  EXPECT_THAT(order(), ElementsAre(2, 3, 0, 1));
  use(0_slot);
  use(1_slot);
  visit(1, 0_layer, {2, 2});
  EXPECT_THAT(order(), ElementsAre(3, 0, 1, 2)) << "1/4, 1/4, 2/4: counted once";
}

TEST_F(ratio_of_a_request, the_routers_choice_counts_if_a_policy_shortened_it) {
  plan(0, 0_layer, {0, -1}, {}, {1, 2});
  support::begin_visit(policy, 0, 0_layer);
  EXPECT_THAT(order(), ElementsAre(0, 3, 1, 2));
}

TEST_F(ratio_of_a_request, inconsistent_arrays_are_not_learned) {
  visit(0, 0_layer, {0, 1});
  const std::vector<std::int32_t> one{2, 2};
  for (const auto& wrong :
       {routing_view{.layer = 0_layer, .experts = std::span(one).first(1)},
        routing_view{.layer = 2_layer, .experts = one},
        routing_view{.layer = 0_layer, .experts = one, .router_choice = std::span(one).first(1)}}) {
    policy.on_routed(wrong);
    support::begin_visit(policy, 1, 0_layer);
  }
  visit(1, 0_layer, {-1, 9});
  open(2, {});
  EXPECT_THAT(order(), ElementsAre(2, 3, 0, 1));
}

TEST_F(ratio_with_room_for_two, the_least_recently_used_request_is_forgotten) {
  visit(0, 0_layer, {0, 1}, {1});
  visit(1, 0_layer, {2, 1}, {2});
  visit(2, 0_layer, {0, 1}, {1});
  visit(3, 0_layer, {3, 3}, {3});  // in the slot of 2
  open(4, {1});
  EXPECT_THAT(order(), ElementsAre(2, 3, 0, 1));
  open(4, {2});
  EXPECT_THAT(order(), ElementsAre(0, 1, 2, 3));
  visit(4, 0_layer, {2, 0}, {2});  // in the slot of 1
  EXPECT_THAT(order(), ElementsAre(1, 3, 0, 2));
  // The last of three new requests gets no place.
  visit(5, 0_layer, {1, 1, 1, 1, 0, 0}, {5, 6, 7});
  EXPECT_THAT(order(), ElementsAre(0, 2, 3, 1));
}

/// All committed visits; each question counts them again.
struct history {
  struct token {
    sequence_id sequence;
    layer_id layer;
    std::vector<expert_id> ids;
  };
  std::vector<token> tokens;

  [[nodiscard]] double ratio(const std::vector<sequence_id>& asking, expert_key key) const {
    std::vector<sequence_id> seen;
    double sum = 0;
    for (const auto s : asking) {
      if (std::ranges::find(seen, s) != seen.end()) continue;
      seen.push_back(s);
      double own = 0;
      double all = 0;
      for (const auto& t : tokens)
        if (t.sequence == s && t.layer == key.layer)
          for (const auto id : t.ids)
            if (id >= 0) own += id == key.expert ? 1 : 0, ++all;
      if (all > 0) sum += own / all;
    }
    return sum;
  }
};

TEST(activation_ratio, agrees_with_the_rule_written_out) {
  const geometry three{.layers = 3, .experts = 5, .top_k = 2, .max_tokens_per_visit = 4};
  const auto layout = pool_layout::shared(three, 9).value();
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    support::random_source random(seed);
    activation_ratio policy(layout, {});
    history model;
    std::map<slot_id, std::pair<expert_key, std::uint64_t>> held;  // and the recency position
    std::uint64_t clock = 0;
    slot_mask eligible(layout.slots());
    for (const auto s : each<slot_id>(9)) {
      expert_use a;
      a.key = three.key(index_of(s) + 3);
      a.slot = s;
      support::bring(policy, a);
      held[s] = {a.key, ++clock};
      eligible.set(s);
    }
    for (step_id step = 0; step < 60; ++step)
      for (const auto layer : each<layer_id>(3)) {
        std::vector<expert_id> ids;
        std::vector<sequence_id> sequences;
        for (auto n = 1 + random.below(4); n > 0; --n) {
          sequences.push_back(static_cast<sequence_id>(random.below(6)));
          for (int k = 0; k < 2; ++k)
            ids.push_back(random.one_in(12) ? no_expert : expert_id{random.id_below(5)});
        }
        routing_view view;
        view.layer = layer;
        view.step = step;
        view.experts = ids;
        view.sequences = sequences;
        policy.on_routed(view);
        std::vector<std::pair<std::pair<double, std::uint64_t>, slot_id>> wanted;
        for (const auto& [slot, of] : held)
          wanted.push_back({{model.ratio(sequences, of.first), of.second}, slot});
        std::ranges::sort(wanted);
        slots out(9);
        ASSERT_EQ(policy.select_victims({}, eligible, out), 9U);
        for (std::size_t i = 0; i < 9; ++i)
          ASSERT_EQ(out[i], wanted[i].second) << "seed " << seed << " step " << step;
        if (random.one_in(6)) continue;  // the visit is aborted
        support::begin_visit(policy, step, layer);
        for (std::size_t t = 0; t < sequences.size(); ++t)
          model.tokens.push_back({sequences[t], layer, {ids[2 * t], ids[2 * t + 1]}});
        expert_use a;
        a.slot = slot_id{random.id_below(9)};
        a.key = held[a.slot].first;
        support::hit(policy, a);
        held[a.slot].second = ++clock;
      }
  }
}

TEST(activation_ratio, refuses_a_model_whose_counts_do_not_fit) {
  const geometry vast{.layers = 1 << 14, .experts = 1 << 14, .top_k = 2};
  EXPECT_FALSE(activation_ratio::config{.requests = 7}.validate(vast));
  EXPECT_EQ(
      activation_ratio::config{.requests = 8}.validate(vast)->message,
      "activation_ratio requests = 8 of 16384 layers x 16384 experts needs 17180917760 bytes, "
      "accepted: at most 17179869184");
  EXPECT_TRUE(activation_ratio::config{.requests = 0}.validate(vast));
}

}  // namespace
}  // namespace hotset::activation_ratio_test
