// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Conformance suite for eviction policies, the library's and your own. Random event sequences are sent to a policy
/// and to the naive form of its rule; both must always agree. Needs GoogleTest.
///
///     HOTSET_EVICTION_CONFORMANCE(mine, hotset::suites::plain<my_policy>);
///
/// Put this line into a test's source, outside all namespaces. It is enough for a policy without options. For others,
/// derive an entry from `plain`:
///
/// | entry member | meaning |
/// |---|---|
/// | `policy` | the policy |
/// | `options(shape, visits)` | its config for these visits |
/// | `rule()` | optional: the naive form, a `reference::ranking`; default: the policy's own full order |
/// | `prepare(state, shape, visits)` | sets the initial state of the naive form |

#include <gtest/gtest.h>

#include "hotset/policy/eviction_policy.hpp"
#include "hotset/testing/eviction_walk.hpp"

namespace hotset::suites {

template <class Entry>
class eviction_conformance : public testing::Test {
  static_assert(is_eviction_policy<typename Entry::policy>());
};
TYPED_TEST_SUITE_P(eviction_conformance);

TYPED_TEST_P(eviction_conformance, agrees_with_the_naive_form) {
  EXPECT_EQ(problem_in_walks(TypeParam(), 12), "");
}

TYPED_TEST_P(eviction_conformance, is_deterministic_and_survives_a_move) {
  EXPECT_EQ(problem_of_determinism(TypeParam()), "");
}

TYPED_TEST_P(eviction_conformance, offers_nothing_where_nothing_is_eligible) {
  EXPECT_EQ(problem_with_nothing(TypeParam()), "");
}

REGISTER_TYPED_TEST_SUITE_P(eviction_conformance, agrees_with_the_naive_form,
                            is_deterministic_and_survives_a_move,
                            offers_nothing_where_nothing_is_eligible);

}  // namespace hotset::suites

/// Adds a policy to the suite. Use it at namespace scope, outside all namespaces. `entry` may be a testing::Types<...>
/// of several entries.
#define HOTSET_EVICTION_CONFORMANCE(name, ...)                             \
  namespace hotset::suites {                                               \
  INSTANTIATE_TYPED_TEST_SUITE_P(name, eviction_conformance, __VA_ARGS__); \
  }                                                                        \
  static_assert(true)
