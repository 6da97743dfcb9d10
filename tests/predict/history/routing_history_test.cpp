// SPDX-License-Identifier: Apache-2.0
// Tests promises other than the search result; tests/eviction/similar_steps_test.cpp compares that with the rule.
#include "hotset/predict/history/routing_history.hpp"

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "hotset/predict/history/next_use_values.hpp"
#include "naive_history.hpp"
#include "random_source.hpp"
#include "token_visit.hpp"
#include "written_ids.hpp"

namespace hotset::routing_history_test {
namespace {

constexpr geometry shape{.layers = 2, .experts = 16, .top_k = 2, .max_tokens_per_visit = 8};
using history = routing_history;

using support::expert_ids;
using visit = support::token_visit;
void see(history& of, const visit& v) {
  of.stage(v.view());
  of.keep();
}
std::set<expert_id> ids_of(const history& of, layer_id layer, history::row_id row) {
  std::set<expert_id> out;
  const auto set = of.ring().set(layer, row);
  for (const auto e : each<expert_id>(16))
    if (((set[0] >> static_cast<unsigned>(e)) & 1U) != 0) out.insert(e);
  return out;
}
std::vector<history::match> best(history& of, sequence_id sequence,
                                 history::rows_with need = history::rows_with::successor) {
  std::vector<history::match> out(8);
  out.resize(of.find_similar_to(sequence, need, out));
  return out;
}

TEST(routing_history, the_most_similar_row_is_found_with_its_successor) {
  history of(shape, {.rows = 256});
  const auto token = [&](step_id step, expert_id e) {
    see(of, {0_layer, step, {e, 9_expert}, {}});
    see(of, {1_layer, step, {e, 8_expert}, {}});
  };
  token(0, 1_expert);
  token(1, 2_expert);
  token(2, 3_expert);
  token(3, 1_expert);
  const auto found = best(of, 0);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(ids_of(of, 0_layer, found[0].row), (std::set<expert_id>{1_expert, 9_expert}));
  const auto after = of.ring().successor(found[0].row);
  ASSERT_NE(after, history::no_row);
  EXPECT_EQ(ids_of(of, 1_layer, after), (std::set<expert_id>{2_expert, 8_expert}));
  EXPECT_EQ(of.ring().successor(2), history::no_row) << "its successor's step has not ended";
  EXPECT_EQ(best(of, 99).size(), 0U) << "nobody knows the sequence";
}

TEST(routing_history, a_row_without_a_successor_may_be_requested) {
  history of(shape, {.rows = 256});
  see(of, {0_layer, 0, expert_ids({1, 2}), {}});
  see(of, {0_layer, 1, expert_ids({1, 2}), {}});
  EXPECT_EQ(best(of, 0).size(), 0U);
  const auto found = best(of, 0, history::rows_with::layers);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].row, 0);
}

TEST(routing_history, a_layer_that_a_step_leaves_out_is_empty_in_its_row) {
  history of(shape, {.rows = 256});
  for (step_id step = 0; step < 256; ++step) {
    see(of, {0_layer, step, expert_ids({3, 4}), {}});
    see(of, {1_layer, step, expert_ids({5, 6}), {}});
  }
  see(of, {0_layer, 256, expert_ids({7, 8}), {}});  // reuses row 0, without layer 1
  EXPECT_EQ(ids_of(of, 1_layer, 0), (std::set<expert_id>{5_expert, 6_expert})) << "not known yet";
  of.stage(visit{1_layer, 257, expert_ids({5, 6}), {}}.view());  // the step has ended
  EXPECT_EQ(ids_of(of, 1_layer, 0), std::set<expert_id>{});
  EXPECT_EQ(ids_of(of, 0_layer, 0), (std::set<expert_id>{7_expert, 8_expert}));
}

TEST(routing_history, sequences_beyond_its_room_leave_no_rows) {
  history of(shape, {.rows = 256, .sequences = 2});
  see(of, {0_layer, 0, expert_ids({1, 2, 3, 4, 5, 6}), {10, 11, 12}});
  EXPECT_EQ(ids_of(of, 0_layer, 0), (std::set<expert_id>{3_expert, 4_expert}));
  EXPECT_EQ(ids_of(of, 0_layer, 1), (std::set<expert_id>{5_expert, 6_expert}));
  EXPECT_EQ(ids_of(of, 0_layer, 2), std::set<expert_id>{});
  see(of, {0_layer, 1, expert_ids({7, 8}), {13}});  // a sequence that does not run loses its place
  EXPECT_EQ(ids_of(of, 0_layer, 2), (std::set<expert_id>{7_expert, 8_expert}));
}

TEST(routing_history, a_sequence_that_has_ended_begins_anew_under_its_number) {
  history of(shape, {.rows = 256});
  for (step_id step = 0; step < 4; ++step) see(of, {0_layer, step, expert_ids({1, 2}), {7}});
  EXPECT_FALSE(best(of, 7).empty());
  of.end_sequence(7);
  of.end_sequence(8);  // an unknown sequence
  EXPECT_TRUE(best(of, 7).empty());
  see(of, {0_layer, 4, expert_ids({1, 2}), {7}});
  EXPECT_EQ(of.ring().successor(3), history::no_row) << "the row of the former sequence has none";
}

TEST(routing_history, an_invalid_visit_stages_nothing) {
  history of(shape, {.rows = 256});
  for (const auto& bad :
       {visit{layer_id{-1}, 0, {}, {}}, visit{2_layer, 0, expert_ids({1, 2}), {}},
        visit{0_layer, 0, expert_ids({1}), {}}, visit{0_layer, 0, expert_ids({1, 2}), {1, 2}},
        visit{0_layer, 0, {}, {}}, visit{0_layer, 0, std::vector<expert_id>(18, 1_expert), {}}}) {
    of.stage(bad.view());
    EXPECT_EQ(of.streams(), 0U);
    of.keep();
  }
  EXPECT_EQ(ids_of(of, 0_layer, 0), std::set<expert_id>{});
}

/// Sequences that start, end and repeat earlier text; similarity is requested at some visits, at none of a step, or
/// between visits.
class asked_now_and_then {
 public:
  explicit asked_now_and_then(std::uint64_t seed)
      : random_(seed), naive_(long_shape, options), of_(long_shape, options) {}

  void take_step(step_id step) {
    const auto tokens = next_tokens();
    const auto asks_in = random_.below(2) == 0 ? 0U : 1 + random_.below(4);  // visits of eight
    for (const auto l : each<layer_id>(long_shape.layers)) {
      if (random_.below(20) == 0) continue;
      if (random_.below(4) == 0) try_and_drop(step + random_.below(2), l, tokens);
      const auto streams = stage(step, l, tokens);
      const bool asked = random_.below(8) < asks_in;
      if (asked) expect_same(streams);
      of_.keep();
      naive_.keep(step, l, at(l, tokens), streams, asked);
      if (random_.below(40) == 0) ask_between(tokens.front().sequence);
    }
    if (random_.below(10) == 0) {
      const auto ended = static_cast<sequence_id>(1 + random_.below(3));
      of_.end_sequence(ended);
      naive_.end(ended);
    }
  }
  [[nodiscard]] std::size_t compared() const { return compared_; }

 private:
  static constexpr geometry long_shape{
      .layers = 6, .experts = 20, .top_k = 3, .max_tokens_per_visit = 4};
  static constexpr history::config options{.rows = 256, .sequences = 4, .reach = 1};
  static constexpr std::size_t most = 60;
  struct token {
    sequence_id sequence = 0;
    std::uint64_t phrase = 0;
    bool errs = false;
  };

  std::vector<token> next_tokens() {
    std::vector<token> out;
    for (sequence_id s = 1; s <= 3; ++s) {
      if (s != 1 && random_.below(3) == 0) continue;  // it pauses
      const auto prompt = random_.below(15) == 0 && out.size() < 2 ? 2U : 1U;
      for (std::size_t t = 0; t < prompt; ++t)
        out.push_back({s, (said_[s] += 1 + random_.below(8) / 7) % 12, random_.below(4) == 0});
    }
    return out;
  }
  static std::vector<support::naive_token> at(layer_id layer, const std::vector<token>& tokens) {
    std::vector<support::naive_token> out;
    for (const auto& one : tokens) {
      std::vector<expert_id> ids;
      for (std::uint64_t k = 0; k < 3; ++k)
        ids.push_back(static_cast<expert_id>(
            (one.phrase * 7 + k * 5 + static_cast<std::uint64_t>(layer) + (one.errs ? k : 0)) %
            21));  // 20 is no expert
      out.push_back({one.sequence, ids});
    }
    return out;
  }
  std::vector<support::naive_history::stream> stage(step_id step, layer_id layer,
                                                    const std::vector<token>& tokens) {
    const auto routed = at(layer, tokens);
    visit v{layer, step, {}, {}};
    for (const auto& one : routed) {
      v.ids.insert(v.ids.end(), one.ids.begin(), one.ids.end());
      v.sequences.push_back(one.sequence);
    }
    of_.stage(v.view());
    return naive_.stage(step, layer, routed);
  }
  /// An aborted plan of this step or the next one; it requests similarity too.
  void try_and_drop(step_id step, layer_id layer, const std::vector<token>& tokens) {
    const auto streams = stage(step, layer, tokens);
    if (random_.below(3) != 0) expect_same(streams);
    if (random_.below(2) == 0) of_.drop_stage();
    if (random_.below(4) == 0) ask_between(tokens.front().sequence);
  }
  history::rows_with any_need() {
    return random_.below(2) == 0 ? history::rows_with::successor : history::rows_with::layers;
  }
  void ask_between(sequence_id sequence) {
    if (naive_.similar(sequence) == nullptr) return;
    naive_.ask(sequence);
    const auto need = any_need();
    std::vector<history::match> found(most);
    found.resize(of_.find_similar_to(sequence, need, found));
    const bool successors = need == history::rows_with::successor;
    expect_rows(found, naive_.best(*naive_.similar(sequence), successors, most));
  }
  void expect_same(const std::vector<support::naive_history::stream>& streams) {
    ASSERT_EQ(of_.streams(), streams.size());
    for (std::size_t s = 0; s < streams.size(); ++s) {
      const auto need = any_need();
      std::vector<history::match> found(most);
      found.resize(of_.find_similar(s, need, found));
      const bool successors = need == history::rows_with::successor;
      expect_rows(found, naive_.best(streams[s].similar, successors, most));
    }
  }
  void expect_rows(const std::vector<history::match>& found,
                   const std::vector<std::pair<std::uint32_t, int>>& wanted) {
    ASSERT_EQ(found.size(), wanted.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].similarity, wanted[i].first);
      EXPECT_EQ(found[i].row, wanted[i].second % 256);
      ++compared_;
    }
  }

  support::random_source random_;
  support::naive_history naive_;
  history of_;
  std::map<sequence_id, std::uint64_t> said_;
  std::size_t compared_ = 0;
};

TEST(routing_history, unrequested_similarities_are_computed_at_the_next_request) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    asked_now_and_then now_and_then(seed);
    for (step_id step = 0; step < 600 && !testing::Test::HasFailure(); ++step) {
      SCOPED_TRACE(step);
      now_and_then.take_step(step);
    }
    EXPECT_GT(now_and_then.compared(), 10'000U);
  }
}

TEST(routing_history, a_step_without_requests_passes_on_only_its_own_similarities) {
  const history::config slow{.rows = 256, .reach = 0.5};  // keeps the last tokens' routing
  history asked(shape, slow);
  history left_alone(shape, slow);
  const auto similarity_of_row_2_after = [&](history& of, const std::vector<expert_id>& last) {
    of = history(shape, slow);
    step_id step = 0;
    for (const auto e : expert_ids({1, 2, 3, 4, 1})) {
      see(of, {0_layer, step++, {e, 9_expert}, {}});
      if (&of == &asked) (void)best(of, 0);
    }
    // The row that routed like the previous token is row 0, then row 1.
    see(of, {0_layer, step++, last, {}});
    if (&of == &asked) (void)best(of, 0);
    of.stage(visit{0_layer, step, expert_ids({15, 15}), {}}.view());
    std::vector<history::match> found(8);
    found.resize(of.find_similar(0, history::rows_with::layers, found));
    const auto row = std::ranges::find(found, 2, &history::match::row);
    return row == found.end() ? 0 : int{row->similarity};
  };
  // Row 2 comes two rows after a match of the second to last token, and one row after a match of the last one.
  const auto both = similarity_of_row_2_after(asked, {2_expert, 9_expert});
  const auto last_alone = similarity_of_row_2_after(left_alone, {2_expert, 9_expert});
  EXPECT_GT(last_alone, 0);
  EXPECT_GT(both, last_alone) << "what was passed on before counts, too";
  EXPECT_GT(similarity_of_row_2_after(asked, {14_expert, 14_expert}), 0);
  EXPECT_EQ(similarity_of_row_2_after(left_alone, {14_expert, 14_expert}), 0);
}

TEST(next_use_values, the_same_visit_of_a_step_counts_once) {
  const next_use_values::config options{.history = history::config{.rows = 256}};
  next_use_values once(shape, options);
  next_use_values again(shape, options);
  support::random_source random(3);
  for (step_id step = 0; step < 300; ++step)
    for (const auto l : each<layer_id>(2)) {
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
}  // namespace hotset::routing_history_test
