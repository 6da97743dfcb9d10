// SPDX-License-Identifier: Apache-2.0
#include "hotset/miss/substitute.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "random_source.hpp"
#include "written_ids.hpp"

namespace hotset::substitute_test {
namespace {

static_assert(!substitute::traits.is_exact && !substitute::traits.fetches_all &&
              substitute::traits.needs_logits);

using ids_t = std::vector<expert_id>;
using support::expert_ids;

/// A visit of up to 4 tokens with 8 experts, top-2; residency determines its misses.
struct visit {
  ids_t experts;
  std::vector<slot_id> row = std::vector<slot_id>(8, no_slot);
  std::vector<float> probabilities{};
  std::vector<float> logits{};
  std::set<expert_id> held{};  // resident below precision 0

  void reside(const std::vector<std::int32_t>& experts_of_row) {
    for (const auto e : experts_of_row) row[static_cast<std::size_t>(e)] = slot_id{e};
  }
  [[nodiscard]] std::vector<miss> misses() const {
    std::vector<miss> out;
    for (const auto e : experts) {
      if (e < 0 || (row[static_cast<std::size_t>(e)] >= 0 && !held.contains(e))) continue;
      if (std::any_of(out.begin(), out.end(), [e](const miss& m) { return m.expert == e; }))
        continue;
      out.push_back({.expert = e, .held = held.contains(e) ? 1_precision : miss::absent});
    }
    return out;
  }
};
struct answer {
  ids_t ids;
  std::string actions{};  // f, k or s per miss
};
answer ask(const visit& v, double tolerance, std::int32_t top_k = 2) {
  substitute policy({.layers = 1, .experts = 8, .top_k = top_k, .max_tokens_per_visit = 4},
                    {.tolerance = tolerance});
  routing_view view;
  view.experts = v.experts;
  view.probabilities = v.probabilities;
  view.logits = v.logits;
  const auto misses = v.misses();
  std::vector<miss_decision> out(misses.size());
  answer a{v.experts};
  policy.decide(misses, view, {v.row}, a.ids, out);
  for (const auto& d : out) {
    EXPECT_EQ(d.precision, 0);
    a.actions += d.action == miss_action::fetch        ? 'f'
                 : d.action == miss_action::keep       ? 'k'
                 : d.action == miss_action::substitute ? 's'
                                                       : '?';
  }
  return a;
}

// A pager refuses such a visit; the policy still must not read past its ids.
TEST(substitute, partial_tokens_are_fetched) {
  for (const auto& ids : {expert_ids({1}), expert_ids({0, 3, 1})}) {
    visit v{.experts = ids};
    v.probabilities.assign(ids.size() / 2 * 8, 0.125F);
    v.reside({0, 3, 4});
    EXPECT_EQ(ask(v, 1.0).actions, "f");
    EXPECT_EQ(ask(v, 1.0).ids, ids);
  }
}

TEST(substitute, uses_the_softmax_of_logits_if_probabilities_are_missing) {
  visit v{.experts = expert_ids({0, 1})};
  const auto log2 = static_cast<float>(std::log(2.0));
  v.reside({0, 2});
  // 4 : 2 : 1 and the rest masked: 4/7, 2/7, 1/7.
  const auto none = -std::numeric_limits<float>::infinity();
  v.logits = {100 + 2 * log2, 100 + log2, 100, none, none, none, none, none};
  EXPECT_EQ(ask(v, 0.1429).ids, expert_ids({0, 2}));
  EXPECT_EQ(ask(v, 0.1428).ids, expert_ids({0, 1}));
  v.probabilities = {0.5F, 0.25F, 0.2F, 0, 0, 0, 0, 0};  // given probabilities take precedence
  EXPECT_EQ(ask(v, 0.0501).ids, expert_ids({0, 2}));
}

TEST(substitute, a_masked_expert_is_no_substitute) {
  visit v{.experts = expert_ids({0, 1})};
  const auto none = -std::numeric_limits<float>::infinity();
  v.reside({0, 2});
  v.logits = {2, 1, none, 0, 0, 0, 0, 0};
  EXPECT_EQ(ask(v, 1.0).actions, "f");
  v.logits[2] = 0;
  EXPECT_EQ(ask(v, 1.0).actions, "s");
}

TEST(substitute, fetches_everything_without_scores_or_with_broken_ones) {
  visit v{.experts = expert_ids({0, 1})};
  v.reside({0, 2});
  EXPECT_EQ(ask(v, 1.0).actions, "f");
  v.logits = {1, 1, 1};  // not a row
  EXPECT_EQ(ask(v, 1.0).actions, "f");
  v.logits.assign(8, 1.0F);
  EXPECT_EQ(ask(v, 1.0).actions, "s");
  for (const auto broken :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    v.logits.assign(8, 1.0F);
    v.logits[7] = broken;
    EXPECT_EQ(ask(v, 1.0).actions, "f");
    EXPECT_EQ(ask(v, 1.0).ids, v.experts);
  }
}

TEST(substitute, uses_residents_and_ignores_absent_ids) {
  visit v{.experts = expert_ids({-1, 1, 2, 0})};
  v.reside({0, 2});
  v.held = {2_expert};
  v.logits.assign(16, 1.0F);
  EXPECT_EQ(ask(v, 1.0).actions, "sk");
  EXPECT_EQ(ask(v, 1.0).ids, expert_ids({-1, 0, 2, 0}));
}

/// The rule with sets and a sort.
answer naive(const visit& v, double tolerance, std::size_t k) {
  answer a{v.experts};
  for (const auto& m : v.misses()) {
    if (m.held != miss::absent) {
      a.actions += 'k';
      continue;
    }
    auto tried = a.ids;
    bool all = true;
    for (std::size_t place = 0; place < tried.size() && all; ++place) {
      if (v.experts[place] != m.expert) continue;
      const auto token = place / k;
      const auto score = [&](expert_id e) {
        return v.probabilities[token * 8 + static_cast<std::size_t>(e)];
      };
      std::set<expert_id> taken;
      for (std::size_t r = 0; r < k; ++r) {
        taken.insert(v.experts[token * k + r]);
        taken.insert(tried[token * k + r]);
      }
      std::vector<std::tuple<float, float, expert_id>> candidates;
      for (const auto e : each<expert_id>(8)) {
        const auto distance = std::abs(score(e) - score(m.expert));
        if (v.row[static_cast<std::size_t>(e)] >= 0 && !taken.contains(e) && score(e) > 0 &&
            distance <= tolerance)
          candidates.emplace_back(distance, -score(e), e);
      }
      all = !candidates.empty();
      if (all) tried[place] = std::get<2>(*std::min_element(candidates.begin(), candidates.end()));
    }
    if (all) a.ids = tried;
    a.actions += all ? 's' : 'f';
  }
  return a;
}

TEST(substitute, agrees_with_its_naive_form) {
  std::map<char, int> seen;
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    support::random_source random(seed);
    const auto k = 1 + random.below(3);
    const auto tokens = 1 + random.below(4);
    visit v{};
    for (std::uint64_t p = 0; p < tokens * k; ++p)
      v.experts.push_back(expert_id{random.id_below(9) - 1});
    for (const auto e : each<expert_id>(8))
      if (random.one_in(2)) {
        v.reside({number(e)});
        if (random.one_in(4)) v.held.insert(e);
      }
    // Multiples of 1/16, so that ties occur and differences are exact in float.
    for (std::uint64_t s = 0; s < tokens * 8; ++s)
      v.probabilities.push_back(static_cast<float>(random.below(9)) / 16.0F);
    const auto tolerance = static_cast<double>(random.below(5)) / 16.0;
    const auto got = ask(v, tolerance, static_cast<std::int32_t>(k));
    const auto expected = naive(v, tolerance, k);
    ASSERT_EQ(got.ids, expected.ids);
    ASSERT_EQ(got.actions, expected.actions);
    for (const auto action : got.actions) ++seen[action];
  }
  for (const auto action : {'f', 's', 'k'}) EXPECT_GT(seen[action], 500) << action;
}

}  // namespace
}  // namespace hotset::substitute_test
