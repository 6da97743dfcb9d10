// SPDX-License-Identifier: Apache-2.0
#include "hotset/admission/budgeted.hpp"

#include <gtest/gtest.h>

#include "admission_samples.hpp"

namespace hotset::budgeted_test {
namespace {

using namespace admission_samples;

TEST(budgeted, the_most_recently_active_enter) {
  budgeted policy(layout, {.fills_per_visit = 2});
  policy.on_use(use_of(1, 0), false, false);
  policy.on_use(use_of(2, 1), true, false);
  policy.on_use(use_of(3, 2), false, false);
  EXPECT_EQ(ask(policy, {use_of(1, 3), use_of(2, 3), use_of(3, 3)}), (verdict{0, 1, 1}));
  EXPECT_EQ(ask(policy, {use_of(5, 3), use_of(1, 3), use_of(6, 3)}), (verdict{1, 1, 0}));
  EXPECT_EQ(ask(policy, {use_of(5, 3)}), verdict{1});
}

TEST(budgeted, each_visit_has_its_own_allowance) {
  budgeted policy(layout, {.fills_per_visit = 2});
  policy.on_use(use_of(1, 3), false, true);
  policy.on_use(use_of(4, 3), false, true);
  // The parts of a long prompt have one step and layer.
  EXPECT_EQ(ask(policy, {use_of(5, 3), use_of(6, 3)}), (verdict{1, 1}));
}

TEST(budgeted, nothing_enters_without_an_allowance) {
  EXPECT_EQ(ask(budgeted(layout, {.fills_per_visit = 0}), {use_of(1, 0)}), verdict{0});
}

}  // namespace
}  // namespace hotset::budgeted_test
