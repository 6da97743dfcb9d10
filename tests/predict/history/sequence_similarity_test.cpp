// SPDX-License-Identifier: Apache-2.0
// Tests inputs and outputs; routing_history_test.cpp compares the similarities with the rule.
#include "hotset/predict/history/sequence_similarity.hpp"

#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "written_ids.hpp"

namespace hotset::sequence_similarity_test {
namespace {

TEST(visit_log, returns_visits_in_order) {
  using visits = std::vector<std::pair<layer_id, std::vector<expert_id>>>;
  detail::visit_log log({.layers = 3, .experts = 16, .top_k = 2});
  EXPECT_TRUE(log.is_empty());
  log.add(2_layer, std::vector{4_expert, 5_expert});
  log.add(0_layer, std::vector{6_expert, no_expert});
  EXPECT_FALSE(log.is_empty());
  visits found;
  log.each([&](layer_id layer, std::span<const expert_id> ids) {
    found.emplace_back(layer, std::vector<expert_id>(ids.begin(), ids.end()));
  });
  EXPECT_EQ(found, (visits{{2_layer, {4_expert, 5_expert}}, {0_layer, {6_expert, no_expert}}}));
  log.clear();
  EXPECT_TRUE(log.is_empty());
}

constexpr geometry shape{.layers = 1, .experts = 16, .top_k = 2, .max_tokens_per_visit = 2};
using rows_with = sequence_similarity::rows_with;

/// One sequence over a ring; each step is one visit.
struct one_sequence {
  row_ring ring{shape, 256, 2, 0};
  sequence_similarity similar{shape, 256, 2, 1, 0.5};
  std::size_t room = similar.first_room();
  step_id step = 0;

  /// Returns the most similar row after the visit if it is requested before the visit is kept.
  sequence_similarity::match visit(const std::vector<expert_id>& ids, bool asks) {
    ring.look_as_if_ended(true);
    const sequence_similarity::visit now{
        .sequence = 5, .layer = 0_layer, .ids = ids, .opens_step = true, .rows_of_step = 1};
    std::vector<sequence_similarity::match> best(1);
    if (asks) {
      similar.compare(ring, now, room);
      best.resize(similar.find(ring, room, rows_with::layers, best));
    }
    similar.go_on(ring, 5, asks, room);
    similar.end_step(ring);
    ring.begin_step(step);
    const auto row = ring.oldest();
    similar.take_row(ring, 5, step++);
    similar.keep(now, asks, room);
    ring.routed().write(0, row, ids);
    ring.see(0_layer);
    return best.empty() ? sequence_similarity::match{} : best.front();
  }
};

TEST(sequence_similarity, finds_the_row_that_routed_alike_whether_it_was_asked_before_or_not) {
  for (const bool always : {true, false}) {
    one_sequence of;
    of.visit(support::expert_ids({1, 2}), always);
    of.visit(support::expert_ids({3, 4}), always);
    of.visit(support::expert_ids({5, 6}), always);
    const auto found = of.visit(support::expert_ids({3, 4}), true);
    EXPECT_EQ(found.row, 1) << always;
    EXPECT_GT(found.similarity, 0);
  }
}

TEST(sequence_similarity, follows_a_sequence_from_its_first_row_to_its_end) {
  one_sequence of;
  EXPECT_EQ(of.similar.most_sequences(), 2U);
  EXPECT_FALSE(of.similar.follows(5));
  of.visit(support::expert_ids({1, 2}), false);
  of.visit(support::expert_ids({1, 2}), false);
  EXPECT_TRUE(of.similar.follows(5));
  std::vector<sequence_similarity::match> best(4);
  of.ring.look_as_if_ended(true);
  EXPECT_EQ(of.similar.find_of(of.ring, 5, rows_with::layers, best), 1U);
  EXPECT_EQ(best[0].row, 0);
  of.similar.end(5);
  EXPECT_FALSE(of.similar.follows(5));
  EXPECT_EQ(of.similar.find_of(of.ring, 5, rows_with::layers, best), 0U);
}

}  // namespace
}  // namespace hotset::sequence_similarity_test
