// SPDX-License-Identifier: Apache-2.0
#include "hotset/admission/budgeted.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace hotset {
namespace {

using verdict = std::vector<std::uint8_t>;

const geometry shape{.layers = 2, .experts = 8, .top_k = 2};
const pool_layout layout = pool_layout::shared(shape, 4).value();

access use_of(expert_id e, step_id step, bool repeated = false) {
  access a;
  a.key = {0, e};
  a.step = step;
  a.ordinal = step;
  a.repeated = repeated;
  return a;
}
template <class A>
verdict ask(const A& policy, const std::vector<access>& misses) {
  verdict out(misses.size() + 1, 7);
  visit_context context;
  if (!misses.empty()) {
    context.step = misses.front().step;
    context.ordinal = misses.front().ordinal;
  }
  policy.admit(context, misses, std::span(out).first(misses.size()));
  EXPECT_EQ(out.back(), 7) << "wrote past the misses";
  out.pop_back();
  return out;
}

TEST(budgeted, the_most_recently_active_enter) {
  budgeted policy(layout, {.fills_per_visit = 2});
  policy.on_use(use_of(1, 0), false, false);
  policy.on_use(use_of(2, 1), true, false);
  policy.on_use(use_of(3, 2), false, false);
  EXPECT_EQ(ask(policy, {use_of(1, 3), use_of(2, 3), use_of(3, 3)}), (verdict{0, 1, 1}));
  EXPECT_EQ(ask(policy, {use_of(5, 3), use_of(1, 3), use_of(6, 3)}), (verdict{1, 1, 0}));
  EXPECT_EQ(ask(policy, {use_of(5, 3)}), verdict{1});
}

TEST(budgeted, groups_of_a_visit_share_the_allowance) {
  budgeted policy(layout, {.fills_per_visit = 2});
  policy.on_use(use_of(1, 3), false, true);
  EXPECT_EQ(ask(policy, {use_of(4, 3), use_of(5, 3)}), (verdict{1, 0}));
  policy.on_use(use_of(4, 3), false, true);
  EXPECT_EQ(ask(policy, {use_of(5, 3)}), verdict{0});
  EXPECT_EQ(ask(policy, {use_of(5, 4), use_of(6, 4)}), (verdict{1, 1}));  // a new visit
}

TEST(budgeted, nothing_enters_without_an_allowance) {
  EXPECT_EQ(ask(budgeted(layout, {.fills_per_visit = 0}), {use_of(1, 0)}), verdict{0});
}

}  // namespace
}  // namespace hotset
