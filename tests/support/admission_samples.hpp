// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Shared by the tests of admission policies: uses of experts, and the verdict on a visit's misses.

#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "hotset/policy/admission_policy.hpp"
#include "written_ids.hpp"

namespace hotset::admission_samples {

using verdict = std::vector<std::uint8_t>;

inline const geometry shape{.layers = 2, .experts = 8, .top_k = 2};
inline const pool_layout layout = pool_layout::shared(shape, 4).value();

inline expert_use use_of(support::written_expert e, step_id step, bool repeated = false) {
  return {.key = {0_layer, e}, .step = step, .ordinal = step, .repeated = repeated};
}
template <class A>
verdict ask(const A& policy, const std::vector<expert_use>& misses) {
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

}  // namespace hotset::admission_samples
