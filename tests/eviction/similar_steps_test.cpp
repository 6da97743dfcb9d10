// SPDX-License-Identifier: Apache-2.0
#include "hotset/eviction/similar_steps.hpp"

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "hotset/eviction/two_rate.hpp"
#include "hotset/paging/pager.hpp"
#include "naive_similar_steps.hpp"
#include "random_source.hpp"

namespace hotset::similar_steps_test {
namespace {

using support::naive_similar_steps;
using support::naive_token;

constexpr geometry shape{.layers = 3, .experts = 24, .top_k = 3, .max_tokens_per_visit = 6};

/// Sequences that repeat phrases with errors, so that some rows are similar. They start, pause, end and have prompts;
/// sometimes a layer is left out or an id is absent.
class traffic {
 public:
  explicit traffic(std::uint64_t seed, std::size_t most_running)
      : random_(seed), running_(most_running) {
    for (int i = 0; i < 20; ++i) phrase_.push_back(any_token());
  }
  struct step {
    std::vector<sequence_id> sequences;
    std::vector<std::vector<std::vector<expert_id>>> ids;  // [layer][token]
  };
  step next() {
    step out;
    out.ids.resize(3);
    for (auto& one : running_) {
      if (one.left == 0)
        one = {.sequence = ++last_,
               .at = random_.below(20),
               .left = 5 + random_.below(60),
               .fresh = true};
      const auto prompt = one.fresh && random_.below(2) == 0 ? 1 + random_.below(3) : 1;
      if (!one.fresh && running_.size() > 1 && random_.below(6) == 0) continue;  // it pauses
      one.fresh = false;
      for (std::uint64_t t = 0; t < prompt && out.sequences.size() < 6; ++t) say(one, out);
    }
    if (out.sequences.empty()) say(running_.front(), out);
    return out;
  }
  bool leaves_out() { return random_.below(25) == 0; }

 private:
  struct speaker {
    sequence_id sequence = 0;
    std::uint64_t at = 0;
    std::uint64_t left = 0;
    bool fresh = true;
  };
  std::vector<std::vector<expert_id>> any_token() {
    std::vector<std::vector<expert_id>> out(3);
    for (auto& ids : out)
      for (int k = 0; k < 3; ++k) ids.push_back(static_cast<expert_id>(random_.below(24)));
    return out;
  }
  void say(speaker& one, step& to) {
    if (random_.below(8) == 0) one.at = random_.below(20);
    auto token = phrase_[one.at];
    one.at = (one.at + 1) % 20;
    if (one.left > 0) --one.left;
    for (auto& ids : token)
      if (random_.below(3) == 0)
        ids[random_.below(3)] =
            random_.below(10) == 0 ? no_expert : static_cast<expert_id>(random_.below(24));
    to.sequences.push_back(one.sequence);
    for (std::size_t l = 0; l < 3; ++l) to.ids[l].push_back(token[l]);
  }

  support::random_source random_;
  std::vector<speaker> running_;
  std::vector<std::vector<std::vector<expert_id>>> phrase_;
  sequence_id last_ = 0;
};

/// Keys that the pager holds.
template <class Pager>
std::set<std::pair<layer_id, expert_id>> residents_of(const Pager& pages) {
  std::set<std::pair<layer_id, expert_id>> out;
  for (const auto l : each<layer_id>(shape.layers))
    for (const auto e : each<expert_id>(shape.experts))
      if (pages.row(l)[index_of(e)] != no_slot) out.emplace(l, e);
  return out;
}

struct run_case {
  std::uint64_t seed;
  std::size_t running;
  std::int32_t slots;
  bool shared;
};

/// `twice`: each visit is planned, aborted and planned again; another visit is planned between.
template <class P = similar_steps>
void expect_as_the_naive_form(const run_case& c, const typename P::config& options,
                              bool twice = false) {
  SCOPED_TRACE("seed " + std::to_string(c.seed) + ", " + std::to_string(c.running) + " running, " +
               std::to_string(c.slots) + (c.shared ? " shared" : " a layer"));
  const auto layout = c.shared ? pool_layout::shared(shape, c.slots).value()
                               : pool_layout::per_layer(shape, c.slots).value();
  pager<P> pages({.layout = layout, .eviction = options});
  auto plan = pages.make_plan();
  naive_similar_steps naive(shape, options.values(), static_cast<std::size_t>(c.slots), c.shared);
  traffic talk(c.seed, c.running);
  std::uint64_t misses = 0;
  for (step_id step = 0; step < 420; ++step) {
    const auto now = talk.next();
    for (const auto l : each<layer_id>(3)) {
      if (talk.leaves_out()) continue;
      std::vector<naive_token> tokens;
      std::vector<expert_id> ids;
      for (std::size_t t = 0; t < now.sequences.size(); ++t) {
        const auto& of_token = now.ids[index_of(l)][t];
        tokens.push_back({now.sequences[t], of_token});
        ids.insert(ids.end(), of_token.begin(), of_token.end());
      }
      routing_view view;
      view.layer = l;
      view.step = step;
      view.experts = ids;
      view.sequences = now.sequences;
      if (twice) {
        auto other = view;
        other.layer = static_cast<layer_id>((number(l) + 1) % 3);
        other.step = step + 7;
        for (const auto& tried : {view, other, view}) {
          ASSERT_EQ(pages.plan(tried, plan), status::ok);
          ASSERT_EQ(pages.abort(plan), status::ok);
        }
      }
      ASSERT_EQ(pages.serve(view, plan, [](const visit_group&) {}), status::ok);
      misses += naive.visit(step, l, tokens);
      ASSERT_EQ(pages.stats().misses, misses) << "step " << step << ", layer " << l;
      ASSERT_EQ(residents_of(pages), naive.residents()) << "step " << step << ", layer " << l;
    }
  }
}

TEST(similar_steps, one_sequence_after_another_as_the_naive_form) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed)
    for (const bool shared : {false, true})
      expect_as_the_naive_form({seed, 1, shared ? 27 : 10, shared}, {.rows = 256});
}
TEST(similar_steps, sequences_that_run_together_as_the_naive_form) {
  for (std::uint64_t seed = 11; seed <= 14; ++seed)
    for (const bool shared : {false, true})
      expect_as_the_naive_form({seed, 4, shared ? 60 : 20, shared}, {.rows = 512});
}
TEST(similar_steps, other_parameters_as_the_naive_form) {
  expect_as_the_naive_form(
      {21, 2, 14, false},
      {.rows = 256, .matches = 3, .horizon = 12, .reach = 1.5, .sharpness = 4, .discount = 0.8});
  expect_as_the_naive_form(
      {22, 2, 40, true},
      {.rows = 256, .matches = 40, .horizon = 1, .reach = 3, .sharpness = 30, .discount = 0.3});
}
TEST(similar_steps, an_aborted_plan_has_no_effect) {
  for (const bool shared : {false, true}) {
    expect_as_the_naive_form({31, 1, shared ? 27 : 10, shared}, {.rows = 256}, true);
    expect_as_the_naive_form({32, 3, shared ? 60 : 20, shared}, {.rows = 256}, true);
  }
}

TEST(two_rate, as_the_naive_form) {
  for (const bool shared : {false, true}) {
    expect_as_the_naive_form<two_rate>({41, 1, shared ? 27 : 10, shared}, {});
    expect_as_the_naive_form<two_rate>(
        {42, 3, shared ? 60 : 20, shared},
        {.fast = 5, .slow = 40, .blend = 0.7, .lately = 0, .discount = 0.9}, true);
  }
}

TEST(similar_steps, finds_the_successors_of_similar_rows) {
  // One layer; each token uses one expert. 2 always follows 0 1; random tokens stand between.
  constexpr geometry one{.layers = 1, .experts = 64, .top_k = 2};
  pager<similar_steps> pages({.layout = pool_layout::shared(one, 12).value()});
  pager<two_rate> without({.layout = pool_layout::shared(one, 12).value()});
  auto plan = pages.make_plan();
  auto other = without.make_plan();
  support::random_source random(5);
  step_id step = 0;
  const auto serve = [&](std::vector<std::int32_t> ids) {
    routing_view view;
    view.step = step++;
    view.experts = ids;
    EXPECT_EQ(pages.serve(view, plan, [](const visit_group&) {}), status::ok);
    EXPECT_EQ(without.serve(view, other, [](const visit_group&) {}), status::ok);
  };
  for (int n = 0; n < 200; ++n) {
    const auto phrase = static_cast<std::int32_t>(6 * random.below(10));
    for (std::int32_t i = 0; i < 3; ++i) serve({phrase + 2 * i, phrase + 2 * i + 1});
  }
  EXPECT_LT(pages.stats().misses, without.stats().misses);
}

TEST(similar_steps, parameters_out_of_range_are_refused) {
  const auto refused = [](similar_steps::config options, const char* what) {
    const auto bad = options.validate();
    ASSERT_TRUE(bad) << what;
    EXPECT_NE(bad->message.find(what), std::string::npos) << bad->message;
  };
  EXPECT_EQ(similar_steps::config{}.validate(), std::nullopt);
  refused({.rows = 255}, "rows");
  refused({.rows = 300}, "multiple of 256");
  refused({.rows = 65536}, "rows");
  refused({.sequences = 0}, "sequences");
  refused({.rows = 256, .sequences = 129}, "sequences");
  refused({.matches = 0}, "matches");
  refused({.matches = 65}, "matches");
  refused({.horizon = 16}, "horizon");
  refused({.reach = 0}, "reach");
  refused({.sharpness = -1}, "sharpness");
  refused({.discount = 1.5}, "discount");
  EXPECT_TRUE((two_rate::config{.fast = 0}.validate()));
  EXPECT_TRUE((two_rate::config{.blend = 2}.validate()));
}

}  // namespace
}  // namespace hotset::similar_steps_test
