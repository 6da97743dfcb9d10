// SPDX-License-Identifier: Apache-2.0
// That it finds what the rule says is shown through tests/eviction/similar_steps_test.cpp; here is what else it promises.
#include "hotset/predict/history/routing_history.hpp"

#include <cstdint>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "hotset/predict/history/next_use_values.hpp"
#include "random_source.hpp"
#include "token_visit.hpp"

namespace hotset {
namespace {

constexpr geometry shape{.layers = 2, .experts = 16, .top_k = 2, .max_tokens_per_visit = 8};
using history = routing_history;

using visit = support::token_visit;
void see(history& of, const visit& v) {
  of.stage(v.view());
  of.keep();
}
std::set<expert_id> ids_of(const history& of, layer_id layer, history::row_id row) {
  std::set<expert_id> out;
  const auto set = of.set(layer, row);
  for (expert_id e = 0; e < 16; ++e)
    if (((set[0] >> static_cast<unsigned>(e)) & 1U) != 0) out.insert(e);
  return out;
}
std::vector<history::match> best(history& of, sequence_id sequence,
                                 history::rows_with need = history::rows_with::successor) {
  std::vector<history::match> out(8);
  out.resize(of.find_similar_to(sequence, need, out));
  return out;
}

TEST(routing_history, the_row_that_routed_alike_is_found_with_what_came_after_it) {
  history of(shape, {.rows = 256});
  const auto token = [&](step_id step, expert_id e) {
    see(of, {0, step, {e, 9}, {}});
    see(of, {1, step, {e, 8}, {}});
  };
  token(0, 1);
  token(1, 2);
  token(2, 3);
  token(3, 1);
  const auto found = best(of, 0);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(ids_of(of, 0, found[0].row), (std::set<expert_id>{1, 9}));
  const auto after = of.successor(found[0].row);
  ASSERT_NE(after, history::no_row);
  EXPECT_EQ(ids_of(of, 1, after), (std::set<expert_id>{2, 8}));
  EXPECT_EQ(of.successor(2), history::no_row) << "its successor's step has not ended";
  EXPECT_EQ(best(of, 99).size(), 0U) << "nobody knows the sequence";
}

TEST(routing_history, a_row_without_a_successor_may_be_asked_for) {
  history of(shape, {.rows = 256});
  see(of, {0, 0, {1, 2}, {}});
  see(of, {0, 1, {1, 2}, {}});
  EXPECT_EQ(best(of, 0).size(), 0U);
  const auto found = best(of, 0, history::rows_with::layers);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].row, 0);
}

TEST(routing_history, a_layer_that_a_step_leaves_out_is_empty_in_its_row) {
  history of(shape, {.rows = 256});
  for (step_id step = 0; step < 256; ++step) {
    see(of, {0, step, {3, 4}, {}});
    see(of, {1, step, {5, 6}, {}});
  }
  see(of, {0, 256, {7, 8}, {}});  // row 0 again, without layer 1
  EXPECT_EQ(ids_of(of, 1, 0), (std::set<expert_id>{5, 6})) << "not known yet";
  of.stage(visit{1, 257, {5, 6}, {}}.view());  // the step has ended
  EXPECT_EQ(ids_of(of, 1, 0), std::set<expert_id>{});
  EXPECT_EQ(ids_of(of, 0, 0), (std::set<expert_id>{7, 8}));
}

TEST(routing_history, sequences_beyond_its_room_leave_no_rows) {
  history of(shape, {.rows = 256, .sequences = 2});
  see(of, {0, 0, {1, 2, 3, 4, 5, 6}, {10, 11, 12}});
  EXPECT_EQ(ids_of(of, 0, 0), (std::set<expert_id>{3, 4}));
  EXPECT_EQ(ids_of(of, 0, 1), (std::set<expert_id>{5, 6}));
  EXPECT_EQ(ids_of(of, 0, 2), std::set<expert_id>{});
  see(of, {0, 1, {7, 8}, {13}});  // one that is not running gives up its place
  EXPECT_EQ(ids_of(of, 0, 2), (std::set<expert_id>{7, 8}));
}

TEST(routing_history, a_sequence_that_has_ended_begins_anew_under_its_number) {
  history of(shape, {.rows = 256});
  for (step_id step = 0; step < 4; ++step) see(of, {0, step, {1, 2}, {7}});
  EXPECT_FALSE(best(of, 7).empty());
  of.end_sequence(7);
  of.end_sequence(8);  // nobody knows it
  EXPECT_TRUE(best(of, 7).empty());
  see(of, {0, 4, {1, 2}, {7}});
  EXPECT_EQ(of.successor(3), history::no_row) << "the row of the former sequence has none";
}

TEST(routing_history, what_is_no_visit_of_the_model_stages_nothing) {
  history of(shape, {.rows = 256});
  for (const auto& bad : {visit{-1, 0, {}, {}}, visit{2, 0, {1, 2}, {}}, visit{0, 0, {1}, {}},
                          visit{0, 0, {1, 2}, {1, 2}}, visit{0, 0, {}, {}},
                          visit{0, 0, std::vector<expert_id>(18, 1), {}}}) {
    of.stage(bad.view());
    EXPECT_EQ(of.streams(), 0U);
    of.keep();
  }
  EXPECT_EQ(ids_of(of, 0, 0), std::set<expert_id>{});
}

TEST(next_use_values, the_same_visit_of_a_step_counts_once) {
  const next_use_values::config options{.history = history::config{.rows = 256}};
  next_use_values once(shape, options);
  next_use_values again(shape, options);
  support::random_source random(3);
  for (step_id step = 0; step < 300; ++step)
    for (layer_id l = 0; l < 2; ++l) {
      const visit v{
          l,
          step,
          {static_cast<expert_id>(random.below(16)), static_cast<expert_id>(random.below(16))},
          {}};
      once.stage(v.view());
      again.stage(v.view());
      const std::vector<float> values(once.values().begin(), once.values().end());
      ASSERT_EQ(std::vector<float>(again.values().begin(), again.values().end()), values);
      once.keep();
      again.keep();
      again.stage(v.view());
      EXPECT_FALSE(again.is_staged(l, step));
      again.keep();
    }
}

}  // namespace
}  // namespace hotset
