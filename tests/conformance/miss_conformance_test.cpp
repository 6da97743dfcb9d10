// SPDX-License-Identifier: Apache-2.0
// Every miss policy joins the suite here with its type and options. All get random visits; their decisions must meet
// the pager's requirements.

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "hotset/miss/compute_on_host.hpp"
#include "hotset/miss/drop.hpp"
#include "hotset/miss/drop_cascade.hpp"
#include "hotset/miss/fetch.hpp"
#include "hotset/miss/fetch_lowest.hpp"
#include "hotset/miss/fetch_priority.hpp"
#include "hotset/miss/substitute.hpp"
#include "hotset/policy/any/any_miss_policy.hpp"
#include "hotset/policy/policy_config.hpp"
#include "random_source.hpp"

namespace hotset::miss_conformance_test {
namespace {

using support::random_source;

template <class M>
struct plain {
  using policy = M;
  static typename M::config options() { return {}; }
  static constexpr bool exact = M::traits.is_exact;
  static constexpr bool edits = false;
};
struct fetch_entry : plain<fetch> {};
struct fetch_lowest_entry : plain<fetch_lowest> {};
struct fetch_priority_entry : plain<fetch_priority> {};
struct fetch_priority_short_entry : plain<fetch_priority> {
  static fetch_priority::config options() { return {.percentile = 90.0, .window = 5}; }
};
struct drop_entry : plain<drop> {};
struct drop_cascade_entry : plain<drop_cascade> {
  static drop_cascade::config options() { return {.keep = 1, .percentile = 30.0, .window = 50}; }
};
struct substitute_entry : plain<substitute> {
  static constexpr bool edits = true;
};
struct substitute_any_entry : plain<substitute> {
  static substitute::config options() { return {.tolerance = 1.0}; }
  static constexpr bool edits = true;
};
struct compute_on_host_entry : plain<compute_on_host> {};
struct compute_on_host_split_entry : plain<compute_on_host> {
  static compute_on_host::config options() {
    return {.split = host_split::bandwidth_matched, .fetch_cost = 2.0, .host_cost = 3.0};
  }
};
// A type-erased holder of each policy.
template <class Inner>
struct any_entry : Inner {
  using policy = any_miss_policy;
  static any_miss_policy::config options() {
    return any_miss_policy::holding<typename Inner::policy>(Inner::options());
  }
};

template <class Entry>
class miss_conformance : public testing::Test {};
using entries =
    testing::Types<fetch_entry, fetch_lowest_entry, fetch_priority_entry,
                   fetch_priority_short_entry, drop_entry, drop_cascade_entry, substitute_entry,
                   substitute_any_entry, compute_on_host_entry, compute_on_host_split_entry,
                   any_entry<fetch_entry>, any_entry<fetch_priority_short_entry>,
                   any_entry<substitute_any_entry>, any_entry<compute_on_host_split_entry>>;
TYPED_TEST_SUITE(miss_conformance, entries);

/// A visit's input to a miss policy.
struct visit {
  std::vector<expert_id> experts;
  std::vector<float> weights;
  std::vector<float> logits;
  std::vector<float> probabilities;
  std::vector<slot_id> row;
  std::vector<miss> misses;

  [[nodiscard]] routing_view view() const {
    return {
        .experts = experts, .weights = weights, .logits = logits, .probabilities = probabilities};
  }
};

visit draw(const geometry& shape, random_source& random) {
  visit v;
  const auto k = static_cast<std::size_t>(shape.top_k);
  const auto wide = static_cast<std::size_t>(shape.experts);
  const auto tokens = 1 + random.below(static_cast<std::uint64_t>(shape.max_tokens_per_visit));
  const bool weighed = !random.one_in(4);
  for (std::size_t t = 0; t < tokens; ++t) {
    std::vector<float> z(wide);
    for (auto& one : z) one = static_cast<float>(random.below(64)) / 8.0F;
    std::vector<expert_id> order(wide);
    for (std::size_t e = 0; e < wide; ++e) order[e] = static_cast<expert_id>(e);
    std::stable_sort(order.begin(), order.end(),
                     [&](expert_id a, expert_id b) { return z[index_of(a)] > z[index_of(b)]; });
    for (std::size_t r = 0; r < k; ++r) {
      v.experts.push_back(random.one_in(20) ? no_expert : order[r]);
      if (weighed) v.weights.push_back(1.0F / static_cast<float>(r + 1 + random.below(4)));
    }
    v.logits.insert(v.logits.end(), z.begin(), z.end());
  }
  if (random.one_in(4)) v.logits.clear();
  if (random.one_in(3))
    for (std::size_t n = 0; n < tokens * wide; ++n)
      v.probabilities.push_back(static_cast<float>(random.below(100)) / 100.0F);
  std::vector<precision_id> held(wide, miss::absent);
  v.row.assign(wide, no_slot);
  for (std::size_t e = 0; e < wide; ++e)
    if (random.one_in(2)) {
      v.row[e] = static_cast<slot_id>(e);
      held[e] = static_cast<precision_id>(random.below(shape.precisions()));
    }
  for (std::size_t place = 0; place < v.experts.size(); ++place) {
    const auto e = v.experts[place];
    if (e < 0 || held[static_cast<std::size_t>(e)] == 0) continue;
    auto m = std::find_if(v.misses.begin(), v.misses.end(),
                          [e](const miss& one) { return one.expert == e; });
    const auto rank = static_cast<std::uint16_t>(place % k);
    if (m == v.misses.end())
      m = v.misses.insert(m, {.expert = e,
                              .rank = rank,
                              .weight = weighed ? 0.0F : 1.0F,
                              .held = held[static_cast<std::size_t>(e)]});
    ++m->uses;
    m->rank = std::min(m->rank, rank);
    if (weighed) m->weight = std::max(m->weight, v.weights[place]);
  }
  return v;
}

constexpr miss_decision untouched{static_cast<miss_action>(99), 99_precision};
bool same(miss_decision a, miss_decision b) {
  return a.action == b.action && (a.action != miss_action::fetch || a.precision == b.precision);
}

template <class M>
struct answer {
  std::vector<expert_id> ids;
  std::vector<miss_decision> out;
  answer(M& policy, const visit& v) : ids(v.experts), out(v.misses.size() + 2, untouched) {
    policy.decide(v.misses, v.view(), {v.row}, ids, std::span(out).first(v.misses.size()));
  }
  friend bool operator==(const answer& a, const answer& b) {
    return a.ids == b.ids && std::equal(a.out.begin(), a.out.end(), b.out.begin(), same);
  }
};

const miss* miss_of(const visit& v, expert_id e) {
  const auto m = std::find_if(v.misses.begin(), v.misses.end(),
                              [e](const miss& one) { return one.expert == e; });
  return m == v.misses.end() ? nullptr : &*m;
}

void expect_legal(const visit& v, const std::vector<miss_decision>& out, const geometry& shape,
                  bool exact, bool edits) {
  for (std::size_t n = 0; n < v.misses.size(); ++n) {
    const auto held = v.misses[n].held;
    switch (out[n].action) {
      case miss_action::fetch:
        EXPECT_LT(out[n].precision, shape.precisions());
        EXPECT_LT(out[n].precision, held);  // absent counts as above all
        if (exact) {
          EXPECT_EQ(out[n].precision, 0);
        }
        break;
      case miss_action::keep:
        EXPECT_NE(held, miss::absent);
        EXPECT_FALSE(exact);
        break;
      case miss_action::host: break;
      case miss_action::drop: EXPECT_FALSE(exact); break;
      case miss_action::substitute: EXPECT_TRUE(edits); break;
      default: ADD_FAILURE() << "no decision about miss " << n;
    }
  }
  for (auto n = v.misses.size(); n < out.size(); ++n)
    EXPECT_TRUE(same(out[n], untouched)) << "wrote past";
}

/// Only places of a substituted expert change, all of them, to an expert that can serve the token.
void expect_consistent(const visit& v, const std::vector<expert_id>& ids,
                       const std::vector<miss_decision>& out, const geometry& shape) {
  const auto k = static_cast<std::size_t>(shape.top_k);
  for (std::size_t place = 0; place < ids.size(); ++place) {
    const auto* const m = miss_of(v, v.experts[place]);
    const bool substituted =
        m != nullptr &&
        out[static_cast<std::size_t>(m - v.misses.data())].action == miss_action::substitute;
    EXPECT_EQ(ids[place] != v.experts[place], substituted) << "place " << place;
    if (!substituted) continue;
    ASSERT_TRUE(ids[place] >= 0 && ids[place] < shape.experts);
    EXPECT_NE(v.row[static_cast<std::size_t>(ids[place])], no_slot);
    const auto token = ids.begin() + static_cast<std::ptrdiff_t>(place / k * k);
    EXPECT_EQ(std::count(token, token + shape.top_k, ids[place]), 1);
  }
}

template <class Entry>
void walk(const geometry& shape, std::uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed) + ", precisions " +
               std::to_string(shape.precisions()));
  using M = typename Entry::policy;
  const auto options = Entry::options();
  ASSERT_FALSE(options.validate());
  if (validate_for(options, shape)) return;  // invalid for this model
  M policy(shape, options);
  M twin(shape, options);
  EXPECT_EQ(policy.prefetch_precision(), 0) << "no visit waits for a prefetch";
  random_source random(seed);
  for (int n = 0; n < 60; ++n) {
    const auto v = draw(shape, random);
    const answer<M> first(policy, v);
    EXPECT_EQ(first, answer<M>(policy, v)) << "asked twice";
    const auto other = draw(shape, random);
    const answer<M> between(policy, other);
    EXPECT_EQ(first, answer<M>(policy, v)) << "asked about another visit between";
    EXPECT_EQ(first, answer<M>(twin, v));
    expect_legal(v, first.out, shape, Entry::exact, Entry::edits);
    expect_consistent(v, first.ids, first.out, shape);
    if (Entry::exact) {
      EXPECT_EQ(first.ids, v.experts);
    }
    if (M::traits.fetches_all) {
      for (std::size_t m = 0; m < v.misses.size(); ++m)
        EXPECT_TRUE(same(first.out[m], {miss_action::fetch, 0_precision}));
    }
    policy.observe(v.weights);
    twin.observe(v.weights);
  }
}

TYPED_TEST(miss_conformance, decisions_are_legal_and_the_same_when_asked_again) {
  const geometry one{
      .layers = 2, .experts = 12, .top_k = 3, .max_tokens_per_visit = 4, .expert_bytes = {8}};
  auto three = one;
  three.lower_precisions = {{4}, {2}};
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    walk<TypeParam>(one, seed);
    walk<TypeParam>(three, seed);
  }
}

TYPED_TEST(miss_conformance, a_policy_that_was_moved_goes_on) {
  using M = typename TypeParam::policy;
  const geometry shape{.layers = 1,
                       .experts = 12,
                       .top_k = 3,
                       .max_tokens_per_visit = 4,
                       .expert_bytes = {8},
                       .lower_precisions = {{4}, {2}}};
  M stays(shape, TypeParam::options());
  M moved(shape, TypeParam::options());
  random_source random(5);
  for (int n = 0; n < 20; ++n) {
    const auto v = draw(shape, random);
    EXPECT_EQ(answer<M>(stays, v), answer<M>(moved, v));
    stays.observe(v.weights);
    moved.observe(v.weights);
    M next(std::move(moved));
    moved = std::move(next);
  }
}

TYPED_TEST(miss_conformance, a_visit_without_misses_needs_no_answer) {
  using M = typename TypeParam::policy;
  const geometry shape{
      .layers = 1, .experts = 4, .top_k = 2, .expert_bytes = {8}, .lower_precisions = {{4}}};
  M policy(shape, TypeParam::options());
  visit v;
  v.experts = {2_expert, 0_expert};
  v.logits.assign(4, 0.0F);
  v.row.assign(4, 0_slot);
  const answer<M> a(policy, v);
  EXPECT_EQ(a.ids, v.experts);
  EXPECT_TRUE(same(a.out[0], untouched));
}

}  // namespace
}  // namespace hotset::miss_conformance_test
