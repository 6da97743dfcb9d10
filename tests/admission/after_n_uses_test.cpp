// SPDX-License-Identifier: Apache-2.0
#include "hotset/admission/after_n_uses.hpp"

#include <cstdint>

#include <gtest/gtest.h>

#include "admission_samples.hpp"

namespace hotset::after_n_uses_test {
namespace {

using namespace admission_samples;

TEST(after_n_uses, a_key_enters_on_its_nth_miss) {
  after_n_uses policy(layout, {.uses = 2, .after_eviction = 3, .window = 4});
  EXPECT_EQ(ask(policy, {use_of(1, 0), use_of(2, 0)}), (verdict{0, 0}));
  policy.on_use(use_of(1, 0), false, false);
  EXPECT_EQ(ask(policy, {use_of(1, 1), use_of(2, 1)}), (verdict{1, 0}));
  EXPECT_EQ(ask(policy, {use_of(1, 1), use_of(2, 1)}), (verdict{1, 0}));  // asking changes nothing
}

TEST(after_n_uses, recently_evicted_keys_are_admitted_later) {
  after_n_uses policy(layout, {.uses = 1, .after_eviction = 3, .window = 4});
  EXPECT_EQ(ask(policy, {use_of(1, 0)}), verdict{1});
  policy.on_use(use_of(1, 0), false, true);
  policy.on_evict({0_layer, 1_expert}, 2);
  EXPECT_EQ(ask(policy, {use_of(1, 3)}), verdict{0});
  policy.on_use(use_of(1, 3), false, false);
  EXPECT_EQ(ask(policy, {use_of(1, 6)}), verdict{0});
  EXPECT_EQ(ask(policy, {use_of(1, 7)}), verdict{1});  // the window has ended
  policy.on_use(use_of(1, 4), false, false);
  EXPECT_EQ(ask(policy, {use_of(1, 5)}), verdict{1});  // the third miss
}

TEST(after_n_uses, the_longest_window_does_not_wrap) {
  after_n_uses policy(layout, {.uses = 1, .after_eviction = 2, .window = ~std::uint64_t{0}});
  policy.on_evict({0_layer, 1_expert}, 2);
  EXPECT_EQ(ask(policy, {use_of(1, 3)}), verdict{0});
  EXPECT_EQ(ask(policy, {use_of(2, 3)}), verdict{1});
}

TEST(after_n_uses, a_visit_counts_once) {
  after_n_uses policy(layout, {.uses = 2, .after_eviction = 2, .window = 0});
  policy.on_use(use_of(1, 0), false, false);
  EXPECT_EQ(ask(policy, {use_of(1, 0, true)}), verdict{0});  // a later group of the same visit
  policy.on_use(use_of(1, 0, true), false, false);
  EXPECT_EQ(ask(policy, {use_of(1, 0, true)}), verdict{0});
  EXPECT_EQ(ask(policy, {use_of(1, 1)}), verdict{1});
}

TEST(after_n_uses, hits_are_no_misses) {
  after_n_uses policy(layout, {.uses = 2, .after_eviction = 2, .window = 0});
  policy.on_use(use_of(1, 0), true, false);
  EXPECT_EQ(ask(policy, {use_of(1, 1)}), verdict{0});
}

}  // namespace
}  // namespace hotset::after_n_uses_test
