// SPDX-License-Identifier: Apache-2.0
#include "hotset/admission/always.hpp"

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

TEST(always, admits_all) {
  static_assert(always::admits_all);
  EXPECT_EQ(ask(always(layout), {use_of(1, 0), use_of(2, 0)}), (verdict{1, 1}));
  EXPECT_EQ(ask(always(layout), {}), verdict{});
}

}  // namespace
}  // namespace hotset
