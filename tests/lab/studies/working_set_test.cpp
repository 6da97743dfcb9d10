// SPDX-License-Identifier: Apache-2.0
#include "lab/studies/working_set.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "json_of.hpp"
#include "lab/reports/working_set_report.hpp"
#include "lab/traces/synthetic/synthetic.hpp"
#include "sim_samples.hpp"

namespace hotset::working_set_test {
namespace {

using lab::share_sum;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr auto decode = static_cast<std::size_t>(request_class::decode);
constexpr auto prefill = static_cast<std::size_t>(request_class::prefill);
constexpr auto verify = static_cast<std::size_t>(request_class::verify);

/// Adds a row of a sequence to the last step, or to a new one. `row`: layer by layer.
void add_row(routing_trace& trace, std::uint32_t sequence, bool new_step,
             const support::token_row& row, request_class kind = request_class::decode) {
  const auto last = trace.step.empty() ? 0U : trace.step.back() + (new_step ? 1U : 0U);
  trace.step.push_back(last);
  trace.sequence.push_back(sequence);
  trace.kind.push_back(kind);
  trace.ids.insert(trace.ids.end(), row.ids.begin(), row.ids.end());
}

std::vector<double> means(const std::vector<lab::footprint_point>& points) {
  std::vector<double> out;
  for (const auto& point : points) out.push_back(point.pool.mean());
  return out;
}

// Five steps of one token: bursts of two steps use {0 1 2}, {2 3} and {0 3}.
TEST(working_set, of_a_hand_walked_sequence) {
  const auto trace = support::one_layer(8, {{0, 1}, {1, 2}, {2, 3}, {3, 2}, {0, 3}});
  const auto set = lab::measure_working_set(trace, {.burst = 2, .distances = 9});
  EXPECT_EQ(set.pool, 8U);
  const auto& bursts = set.bursts[decode];
  EXPECT_EQ(bursts.pool.count, 3U);
  EXPECT_EQ(bursts.shorter, 1U);
  EXPECT_DOUBLE_EQ(bursts.pool.mean(), 7.0 / 24);
  EXPECT_EQ(bursts.pool.least, 0.25);
  EXPECT_EQ(bursts.pool.most, 0.375);
  EXPECT_EQ(set.bursts[prefill].pool.count, 0U);
  // {2} of {0 1 2 3}, then {3} of {0 2 3}; each time one of the two that come next.
  EXPECT_EQ(set.next_burst.jaccard.count, 2U);
  EXPECT_DOUBLE_EQ(set.next_burst.jaccard.mean(), 7.0 / 24);
  EXPECT_DOUBLE_EQ(set.next_burst.held.mean(), 0.5);
  EXPECT_DOUBLE_EQ(set.next_decode_burst.held.mean(), 0.5);
  EXPECT_EQ(set.next_step.count, 4U);
  EXPECT_DOUBLE_EQ(set.next_step.mean(), (0.5 + 0.5 + 1 + 0.5) / 4);
  EXPECT_THAT(means(set.sequences.after), ElementsAre(0.375, 0.5));
  EXPECT_THAT(means(set.trace.after), ElementsAre(0.375, 0.5));
  EXPECT_EQ(set.sequences.end.mean(), 0.5);
  EXPECT_EQ(set.all_bursts, 3U);
  // Distances 1, 2, 4 and 8; ranks do not matter.
  ASSERT_EQ(set.agreement.size(), 4U);
  EXPECT_DOUBLE_EQ(set.agreement[0].in_order.mean(), 2.5 / 4);
  EXPECT_DOUBLE_EQ(set.agreement[1].in_order.mean(), (0 + 0.5 + 0.5) / 3);
  EXPECT_DOUBLE_EQ(set.agreement[2].in_order.mean(), 0.5);
  EXPECT_EQ(set.agreement[3].distance, 8U);
  EXPECT_EQ(set.agreement[3].in_order.count, 0U);
  EXPECT_EQ(set.agreement[3].shuffled.count, 0U);
}

TEST(working_set, a_prompt_is_one_burst_however_it_is_cut) {
  auto trace = support::empty_trace(1, 10, 2);
  support::add_step(trace, {{0, 1}, {2, 3}}, request_class::prefill);
  support::add_step(trace, {{4, 5}}, request_class::prefill);
  support::add_step(trace, {{6, 7}}, request_class::prefill);
  for (const auto& ids : {std::vector{0, 1}, {1, 2}, {2, 8}}) support::add_step(trace, {ids});
  const auto set = lab::measure_working_set(trace, {.burst = 2});
  EXPECT_EQ(set.bursts[prefill].pool.count, 1U);
  EXPECT_EQ(set.bursts[prefill].pool.mean(), 0.8);
  EXPECT_EQ(set.bursts[prefill].shorter, 0U);
  EXPECT_EQ(set.bursts[decode].pool.count, 2U);
  EXPECT_DOUBLE_EQ(set.bursts[decode].pool.mean(), (0.3 + 0.2) / 2);
  // {0 1 2} after the prompt's eight, {2 8} after {0 1 2}; the latter alone are of decode.
  EXPECT_DOUBLE_EQ(set.next_burst.held.mean(), (1 + 0.5) / 2);
  EXPECT_DOUBLE_EQ(set.next_burst.jaccard.mean(), (3.0 / 8 + 1.0 / 4) / 2);
  EXPECT_EQ(set.next_decode_burst.held.count, 1U);
  EXPECT_EQ(set.next_decode_burst.held.mean(), 0.5);
  EXPECT_EQ(set.next_decode_burst.jaccard.mean(), 0.25);
  EXPECT_EQ(set.next_step.count, 2U) << "the first decode step has a prompt before it";
  EXPECT_EQ(set.next_step.mean(), 0.5);
  // Steps of different kinds are not compared: 2 pairs of prefill and 2 of decode.
  EXPECT_EQ(set.agreement[0].in_order.count, 4U);
  EXPECT_EQ(set.agreement[0].in_order.mean(), (0 + 0 + 0.5 + 0.5) / 4);
}

TEST(working_set, a_burst_ends_with_its_sequence_and_its_kind) {
  auto trace = support::empty_trace(1, 16, 1);
  add_row(trace, 7, true, {0});
  add_row(trace, 7, true, {1}, request_class::verify);
  add_row(trace, 7, false, {2});  // verify, as the row before it
  add_row(trace, 3, false, {3});  // of another sequence: decode
  add_row(trace, 3, false, {4}, request_class::verify);
  add_row(trace, 3, false, {5}, request_class::prefill);  // and prefill after all
  add_row(trace, 3, true, {6});
  add_row(trace, 7, true, {8});
  const auto set = lab::measure_working_set(trace, {.burst = 4});
  EXPECT_EQ(set.bursts[decode].pool.count, 3U);
  EXPECT_EQ(set.bursts[decode].pool.most, 1.0 / 16);
  EXPECT_EQ(set.bursts[decode].shorter, 3U);
  EXPECT_EQ(set.bursts[verify].pool.count, 1U);
  EXPECT_EQ(set.bursts[verify].pool.mean(), 2.0 / 16);
  EXPECT_EQ(set.bursts[verify].shorter, 1U);
  EXPECT_EQ(set.bursts[prefill].pool.count, 1U);
  EXPECT_EQ(set.bursts[prefill].pool.mean(), 3.0 / 16);
  EXPECT_EQ(set.next_burst.held.count, 3U);
  EXPECT_EQ(set.next_decode_burst.held.count, 0U);
  EXPECT_EQ(set.next_step.count, 0U);
}

// Sequence 1 comes between the two bursts of sequence 0 and shares one expert with it.
TEST(working_set, footprints_grow_burst_by_burst_as_they_begin) {
  auto trace = support::empty_trace(2, 4, 1);
  add_row(trace, 0, true, {0, 0});
  add_row(trace, 1, false, {0, 1});
  add_row(trace, 0, true, {1, 0});
  add_row(trace, 1, false, {0, 2});
  add_row(trace, 0, true, {1, 3});
  const auto set = lab::measure_working_set(trace, {.burst = 1});
  // Of sequence 0: 2, 3, 4 pairs of layer and expert; of sequence 1: 2, 3. All: 2, 3, 4, 5, 6.
  ASSERT_EQ(set.sequences.after.size(), 2U);
  EXPECT_EQ(set.sequences.after[0].pool.count, 2U);
  EXPECT_THAT(means(set.sequences.after), ElementsAre(2.0 / 8, 3.0 / 8));
  EXPECT_EQ(set.sequences.end.mean(), 3.5 / 8);
  EXPECT_EQ(set.sequences.end.least, 3.0 / 8);
  EXPECT_EQ(set.sequences.end.most, 4.0 / 8);
  EXPECT_THAT(means(set.trace.after), ElementsAre(2.0 / 8, 3.0 / 8, 5.0 / 8));
  EXPECT_EQ(set.trace.end.mean(), 6.0 / 8);
  EXPECT_EQ(set.all_bursts, 5U);
}

TEST(working_set, tokens_are_compared_one_by_one_where_there_are_equally_many) {
  auto trace = support::empty_trace(1, 4, 1);
  support::add_step(trace, {{0}, {1}});
  support::add_step(trace, {{1}, {0}});
  support::add_step(trace, {{1}, {2}});
  support::add_step(trace, {{1}, {2}, {3}});
  const auto set = lab::measure_working_set(trace, {.distances = 2});
  // As sets all of two, one of two and two of three come again; at their positions none, one of
  // two, and for three tokens after two it is the sets.
  EXPECT_DOUBLE_EQ(set.next_step.mean(), (1 + 0.5 + 2.0 / 3) / 3);
  EXPECT_DOUBLE_EQ(set.agreement[0].in_order.mean(), (0 + 0.5 + 2.0 / 3) / 3);
  // 0 1 and 1 2: none at its place. 1 0 and 1 2 3: one expert of three.
  EXPECT_DOUBLE_EQ(set.agreement[1].in_order.mean(), (0 + 1.0 / 3) / 2);
}

TEST(working_set, absent_ids_are_no_decisions) {
  const auto none = no_expert;
  const auto trace =
      support::one_layer(4, {{0, 1}, {0, none}, {none, none}, {0, 3}, {3, none}, {1, 3}});
  const auto set = lab::measure_working_set(trace, {.burst = 1, .distances = 1});
  EXPECT_EQ(set.bursts[decode].pool.count, 6U);
  EXPECT_EQ(set.bursts[decode].pool.least, 0.0);
  EXPECT_DOUBLE_EQ(set.bursts[decode].pool.mean(), (2 + 1 + 0 + 2 + 1 + 2) / 24.0);
  // {0} after {0 1} is all; nothing after {0} is left out; {0 3} after nothing, {3} after {0 3},
  // {1 3} after {3}.
  EXPECT_EQ(set.next_step.count, 4U);
  EXPECT_DOUBLE_EQ(set.next_step.mean(), (1 + 0 + 1 + 0.5) / 4);
  EXPECT_EQ(set.next_burst.held.count, 4U);
  EXPECT_DOUBLE_EQ(set.next_burst.held.mean(), (1 + 0 + 1 + 0.5) / 4);
  EXPECT_DOUBLE_EQ(set.next_burst.jaccard.mean(), (0.5 + 0 + 0.5 + 0.5) / 4);
  EXPECT_EQ(set.agreement[0].in_order.count, 4U);
  EXPECT_DOUBLE_EQ(set.agreement[0].in_order.mean(), (1 + 0 + 1 + 0.5) / 4);
}

TEST(working_set, of_one_token_has_no_neighbours) {
  const auto set = lab::measure_working_set(support::one_layer(4, {{2, 1}}), {.distances = 1});
  EXPECT_EQ(set.bursts[decode].pool.mean(), 0.5);
  EXPECT_EQ(set.next_burst.held.count, 0U);
  EXPECT_EQ(set.next_step.count, 0U);
  EXPECT_THAT(means(set.trace.after), ElementsAre(0.5));
  EXPECT_EQ(
      support::json_of(set).dump(),
      R"({"pool":4,"burst_steps":32,"seed":1,"bursts":{"decode":{"count":1,"shorter":1,"mean":0.5,"least":0.5,"most":0.5},)"
      R"("prefill":{"count":0,"shorter":0,"mean":null,"least":null,"most":null}},)"
      R"("burst_overlap":{"pairs":0,"jaccard":null,"held":null},)"
      R"("decode_burst_overlap":{"pairs":0,"jaccard":null,"held":null},"step_overlap":{"pairs":0,"share":null},)"
      R"("sequence_footprint":{"after":[{"bursts":1,"sequences":1,"share":0.5}],)"
      R"("end":{"sequences":1,"mean":0.5,"least":0.5,"most":0.5}},)"
      R"("trace_footprint":{"after":[{"bursts":1,"share":0.5}],"end":{"bursts":1,"share":0.5}},)"
      R"("agreement":[{"distance":1,"pairs":0,"share":null,"shuffled_pairs":0,"shuffled":null}]})");
  EXPECT_EQ(lab::to_text(set),
            R"(decode bursts      50.0 % of the pool, 1 burst, 1 of fewer than 32 steps
prefill bursts     none
next burst         no neighbours
next decode burst  no neighbours
next step          no neighbours
growth             of the footprint, as a share of the pool of 4 experts
    bursts  sequences  of a sequence   of the trace
         1          1         50.0 %         50.0 %
       all          1         50.0 %         50.0 %
agreement          of the decisions of steps at a distance, in order and shuffled
  distance   in order       shuffled
         1          -              -
)");
}

TEST(working_set, of_one_step_is_its_union) {
  auto trace = support::empty_trace(2, 4, 1);
  support::add_step(trace, {{0, 1}, {0, 2}, {3, 1}}, request_class::prefill);
  const auto set = lab::measure_working_set(trace);
  EXPECT_EQ(set.bursts[prefill].pool.mean(), 4.0 / 8);
  EXPECT_EQ(set.bursts[decode].pool.count, 0U);
  EXPECT_EQ(set.agreement.size(), 6U);
  for (const auto& point : set.agreement) EXPECT_EQ(point.in_order.count, 0U);
}

TEST(working_set, is_written_with_all_its_figures) {
  auto trace = support::one_layer(8, {{0, 1}, {1, 2}, {2, 3}, {3, 2}, {0, 3}});
  support::add_step(trace, {{4, 5}, {5, 6}}, request_class::verify);
  const auto set = lab::measure_working_set(trace, {.burst = 2, .distances = 2, .seed = 5});
  const auto json = support::json_of(set);
  EXPECT_EQ(json["seed"], 5);
  EXPECT_EQ(json["bursts"]["verify"]["mean"], 0.375);
  EXPECT_EQ(json["burst_overlap"]["pairs"], 3);
  EXPECT_EQ(json["decode_burst_overlap"]["held"], 0.5);
  EXPECT_EQ(json["step_overlap"].dump(), R"({"pairs":4,"share":0.625})");
  EXPECT_EQ(json["trace_footprint"]["end"].dump(), R"({"bursts":4,"share":0.875})");
  EXPECT_EQ(json["agreement"][0]["share"], 0.625);
  const auto text = lab::to_text(set);
  for (const auto* part :
       {"decode bursts      29.2 % (25.0 % to 37.5 %) of the pool, 3 bursts, 1 of fewer than 2 "
        "steps\n",
        "verify bursts      37.5 % of the pool, 1 burst, 1 of fewer than 2 steps\n",
        "next decode burst  29.2 % alike (Jaccard), 50.0 % held by the burst before\n",
        "next step          62.5 % of a decode step's experts were used by the step before\n",
        "       all          1         87.5 %         87.5 %\n", "         1     62.5 %"})
    EXPECT_THAT(text, HasSubstr(part));
}

TEST(working_set, refuses_what_measures_nothing) {
  const auto trace = support::one_layer(4, {{0, 1}});
  const auto refusal = [](const routing_trace& t, const lab::working_set_options& options) {
    return support::refusal<invalid_config>([&] { (void)lab::measure_working_set(t, options); });
  };
  EXPECT_EQ(refusal(trace, {.burst = 0}), "burst = 0, accepted: 1 or more");
  EXPECT_EQ(refusal(trace, {.distances = 0}), "distances = 0, accepted: 1 or more");
  EXPECT_THAT(refusal(support::empty_trace(1, 4, 2), {}), HasSubstr("no tokens, accepted:"));
}

/// What the definitions say, word by word.
namespace naive {

using key_set = std::set<std::pair<layer_id, expert_id>>;
struct step {
  std::uint32_t number = 0;
  request_class kind = request_class::decode;
  std::size_t first_row = 0;
  std::vector<key_set> tokens;
};
using burst = std::vector<step>;

key_set all_of(const std::vector<step>& steps) {
  key_set out;
  for (const auto& s : steps)
    for (const auto& token : s.tokens) out.insert(token.begin(), token.end());
  return out;
}

std::size_t common(const key_set& a, const key_set& b) {
  key_set both;
  std::ranges::set_intersection(a, b, std::inserter(both, both.end()));
  return both.size();
}

std::map<std::uint32_t, std::vector<step>> steps_of(const routing_trace& trace) {
  std::map<std::uint32_t, std::vector<step>> out;
  for (std::size_t t = 0; t < trace.tokens(); ++t) {
    auto& steps = out[trace.sequence[t]];
    if (steps.empty() || steps.back().number != trace.step[t])
      steps.push_back({trace.step[t], request_class::decode, t, {}});
    auto& kind = steps.back().kind;
    if (trace.kind[t] == request_class::prefill) kind = request_class::prefill;
    if (trace.kind[t] == request_class::verify && kind == request_class::decode)
      kind = request_class::verify;
    key_set token;
    for (const auto l : each<layer_id>(trace.layers))
      for (const auto id : trace.ids_of(t, l))
        if (id != no_expert) token.emplace(l, id);
    steps.back().tokens.push_back(token);
  }
  return out;
}

std::vector<burst> bursts_of(const std::vector<step>& steps, std::size_t length) {
  std::vector<burst> out;
  for (const auto& s : steps) {
    const bool goes_on = !out.empty() && out.back().back().kind == s.kind &&
                         (s.kind == request_class::prefill || out.back().size() < length);
    if (!goes_on) out.emplace_back();
    out.back().push_back(s);
  }
  return out;
}

void add(share_sum& out, std::size_t part, std::size_t whole) {
  if (whole > 0) out.add(static_cast<double>(part) / static_cast<double>(whole));
}

void compare_bursts(const burst& a, const burst& b, lab::burst_overlap& out) {
  const auto before = all_of(a);
  const auto now = all_of(b);
  if (now.empty()) return;
  auto either = before;
  either.insert(now.begin(), now.end());
  add(out.jaccard, common(before, now), either.size());
  add(out.held, common(before, now), now.size());
}

void compare_steps(const step& a, const step& b, share_sum& out) {
  if (a.kind != b.kind) return;
  if (a.tokens.size() != b.tokens.size())
    return add(out, common(all_of({a}), all_of({b})), all_of({b}).size());
  std::size_t shared = 0;
  std::size_t decided = 0;
  for (std::size_t i = 0; i < a.tokens.size(); ++i) {
    shared += common(a.tokens[i], b.tokens[i]);
    decided += b.tokens[i].size();
  }
  add(out, shared, decided);
}

void follow(const std::vector<burst>& bursts, std::size_t pool, lab::footprint& out) {
  std::vector<step> so_far;
  std::size_t next = 1;
  for (std::size_t i = 0; i < bursts.size(); ++i) {
    so_far.insert(so_far.end(), bursts[i].begin(), bursts[i].end());
    if (i + 1 != next) continue;
    const auto at = static_cast<std::size_t>(std::log2(next));
    if (out.after.size() <= at) out.after.push_back({next, {}});
    add(out.after[at].pool, all_of(so_far).size(), pool);
    next *= 2;
  }
  add(out.end, all_of(so_far).size(), pool);
}

lab::working_set measure(const routing_trace& trace, const lab::working_set_options& options) {
  lab::working_set out;
  out.pool = static_cast<std::uint64_t>(trace.layers * trace.experts);
  for (std::size_t d = 1; d <= options.distances; d *= 2) out.agreement.push_back({d, {}, {}});
  std::vector<burst> all;
  for (auto& [sequence, steps] : steps_of(trace)) {
    const auto bursts = bursts_of(steps, options.burst);
    for (std::size_t b = 0; b < bursts.size(); ++b) {
      const auto kind = bursts[b].front().kind;
      auto& sizes = out.bursts[static_cast<std::size_t>(kind)];
      add(sizes.pool, all_of(bursts[b]).size(), out.pool);
      const bool cut = kind != request_class::prefill;
      sizes.shorter += cut && bursts[b].size() < options.burst ? 1U : 0U;
      if (b == 0) continue;
      compare_bursts(bursts[b - 1], bursts[b], out.next_burst);
      if (kind == request_class::decode && bursts[b - 1].front().kind == kind)
        compare_bursts(bursts[b - 1], bursts[b], out.next_decode_burst);
    }
    follow(bursts, out.pool, out.sequences);
    all.insert(all.end(), bursts.begin(), bursts.end());
    for (std::size_t s = 1; s < steps.size(); ++s)
      if (steps[s].kind == request_class::decode && steps[s - 1].kind == request_class::decode)
        add(out.next_step, common(all_of({steps[s - 1]}), all_of({steps[s]})),
            all_of({steps[s]}).size());
    auto shuffled = steps;
    splitmix64 random(splitmix64(options.seed).next() ^ sequence);
    for (auto i = shuffled.size(); i > 1; --i)
      std::swap(shuffled[i - 1], shuffled[random.below(i)]);
    for (auto& point : out.agreement)
      for (std::size_t i = point.distance; i < steps.size(); ++i) {
        compare_steps(steps[i - point.distance], steps[i], point.in_order);
        compare_steps(shuffled[i - point.distance], shuffled[i], point.shuffled);
      }
  }
  std::ranges::sort(all, {}, [](const burst& b) { return b.front().first_row; });
  follow(all, out.pool, out.trace);
  out.all_bursts = all.size();
  return out;
}

}  // namespace naive

void expect_same(const share_sum& got, const share_sum& wanted, const char* what) {
  EXPECT_EQ(got.count, wanted.count) << what;
  EXPECT_NEAR(got.total, wanted.total, 1e-9) << what;
  EXPECT_EQ(got.least, wanted.least) << what;
  EXPECT_EQ(got.most, wanted.most) << what;
}

void expect_same(const lab::footprint& got, const lab::footprint& wanted, const char* what) {
  ASSERT_EQ(got.after.size(), wanted.after.size()) << what;
  for (std::size_t i = 0; i < got.after.size(); ++i) {
    EXPECT_EQ(got.after[i].bursts, wanted.after[i].bursts) << what;
    expect_same(got.after[i].pool, wanted.after[i].pool, what);
  }
  expect_same(got.end, wanted.end, what);
}

void expect_same(const lab::working_set& got, const lab::working_set& wanted) {
  EXPECT_EQ(got.pool, wanted.pool);
  for (std::size_t kind = 0; kind < got.bursts.size(); ++kind) {
    expect_same(got.bursts[kind].pool, wanted.bursts[kind].pool, "bursts");
    EXPECT_EQ(got.bursts[kind].shorter, wanted.bursts[kind].shorter);
  }
  expect_same(got.next_burst.jaccard, wanted.next_burst.jaccard, "jaccard");
  expect_same(got.next_burst.held, wanted.next_burst.held, "held");
  expect_same(got.next_decode_burst.jaccard, wanted.next_decode_burst.jaccard, "decode jaccard");
  expect_same(got.next_decode_burst.held, wanted.next_decode_burst.held, "decode held");
  expect_same(got.next_step, wanted.next_step, "next step");
  EXPECT_EQ(got.all_bursts, wanted.all_bursts);
  expect_same(got.sequences, wanted.sequences, "sequences");
  expect_same(got.trace, wanted.trace, "trace");
  ASSERT_EQ(got.agreement.size(), wanted.agreement.size());
  for (std::size_t i = 0; i < got.agreement.size(); ++i) {
    EXPECT_EQ(got.agreement[i].distance, wanted.agreement[i].distance);
    expect_same(got.agreement[i].in_order, wanted.agreement[i].in_order, "in order");
    expect_same(got.agreement[i].shuffled, wanted.agreement[i].shuffled, "shuffled");
  }
}

/// Sequences take turns within steps, kinds differ from row to row, tokens of a step in number.
routing_trace wild_trace(std::uint64_t seed) {
  auto trace = support::random_trace(seed, {.layers = static_cast<std::int32_t>(1 + seed % 3),
                                            .experts = static_cast<std::int32_t>(4 + seed % 5),
                                            .top_k = static_cast<std::int32_t>(1 + seed % 3),
                                            .steps = 5 + seed % 40,
                                            .most_tokens = 1 + seed % 6,
                                            .absent_one_in = seed % 4 == 0 ? 2U : 0U,
                                            .skewed = seed % 2 == 0});
  support::random_source random(~seed);
  const auto sequences = 1 + seed % 4;
  const auto other_kind = seed % 3 == 0 ? 6U : 0U;
  for (std::size_t t = 0; t < trace.tokens(); ++t) {
    trace.sequence[t] = static_cast<std::uint32_t>(9 * random.below(sequences));
    if (seed % 5 != 0) trace.kind[t] = request_class::decode;
    if (other_kind != 0 && random.one_in(other_kind))
      trace.kind[t] = static_cast<request_class>(random.below(3));
  }
  return trace;
}

TEST(working_set, is_what_sets_say_on_five_hundred_traces) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    const auto trace = wild_trace(seed);
    const lab::working_set_options options{.burst = static_cast<std::uint32_t>(1 + seed % 5),
                                           .distances = static_cast<std::uint32_t>(1 + seed % 20),
                                           .seed = seed};
    expect_same(lab::measure_working_set(trace, options), naive::measure(trace, options));
    if (HasFailure()) return;
  }
}

TEST(working_set, one_token_a_step_agrees_as_its_experts_overlap) {
  const auto trace = support::random_trace(11, {.layers = 3, .experts = 16, .top_k = 4});
  const auto set = lab::measure_working_set(trace);
  EXPECT_EQ(set.next_step.count, 39U);
  EXPECT_EQ(set.next_step.total, set.agreement[0].in_order.total);
}

TEST(working_set, shuffles_by_the_seed_each_sequence_for_itself) {
  auto trace = support::random_trace(3, {.experts = 32, .steps = 60, .skewed = false});
  const auto shuffled = [](const routing_trace& t, std::uint64_t seed) {
    return lab::measure_working_set(t, {.distances = 1, .seed = seed}).agreement[0].shuffled.total;
  };
  const auto alone = shuffled(trace, 4);
  EXPECT_EQ(shuffled(trace, 4), alone);
  EXPECT_NE(shuffled(trace, 5), alone);
  // Another sequence that never agrees with itself adds nothing.
  for (std::int32_t id = 0; id < 8; ++id)
    add_row(trace, 1, true, {4 * id, 4 * id + 1, 4 * id, 4 * id + 1});
  trace.weights.clear();
  EXPECT_EQ(shuffled(trace, 4), alone);
}

synthetic_config diffusion(double stickiness) {
  return {.layers = 4,
          .experts = 64,
          .top_k = 8,
          .sequences = 2,
          .tokens = 48,
          .positions = 64,
          .zipf = 0.6,
          .position_stickiness = stickiness,
          .weights = false,
          .seed = 5};
}

// A step routes 64 positions: all experts are used in each, and sets would say nothing.
TEST(working_set, diffusion_without_locality_is_as_its_shuffle) {
  const auto set = lab::measure_working_set(synthetic_trace(diffusion(0)).value(), {.burst = 1});
  EXPECT_GT(set.bursts[decode].pool.least, 0.95);
  EXPECT_GT(set.next_step.mean(), 0.95);
  ASSERT_EQ(set.agreement.size(), 6U);
  for (const auto& point : set.agreement) {
    EXPECT_EQ(point.in_order.count, 2 * (48 - point.distance));
    EXPECT_EQ(point.shuffled.count, 2 * (48 - point.distance));
    EXPECT_NEAR(point.in_order.mean(), point.shuffled.mean(), 0.01) << point.distance;
    EXPECT_NEAR(point.in_order.mean(), set.agreement[0].in_order.mean(), 0.01) << point.distance;
  }
}

TEST(working_set, diffusion_with_locality_agrees_more_the_nearer_steps_are) {
  const auto chance = lab::measure_working_set(synthetic_trace(diffusion(0)).value(), {})
                          .agreement[0]
                          .in_order.mean();
  for (const double kept : {0.3, 0.6, 0.9}) {
    const auto set =
        lab::measure_working_set(synthetic_trace(diffusion(kept)).value(), {.burst = 1});
    EXPECT_GT(set.bursts[decode].pool.least, 0.95) << "as without";
    const auto& near = set.agreement[0];
    EXPECT_GT(near.in_order.mean(), near.shuffled.mean() + 0.2) << kept;
    double before = 1;
    for (const auto& point : set.agreement) {
      // What was kept in every step between, and of the rest what agrees by chance.
      const auto still = std::pow(kept, static_cast<double>(point.distance));
      EXPECT_NEAR(point.in_order.mean(), still + (1 - still) * chance, 0.02)
          << kept << ", " << point.distance;
      if (still > 0.02) {
        EXPECT_LT(point.in_order.mean(), before) << kept << ", " << point.distance;
      }
      before = point.in_order.mean();
    }
  }
}

}  // namespace
}  // namespace hotset::working_set_test
