// SPDX-License-Identifier: Apache-2.0
#include "hotset/policy/any/any_admission_policy.hpp"

#include <gtest/gtest.h>

#include "hotset/admission/after_n_uses.hpp"
#include "hotset/admission/always.hpp"
#include "hotset/admission/budgeted.hpp"
#include "hotset/eviction/lru.hpp"
#include "pager_walk.hpp"
#include "random_source.hpp"

namespace hotset::any_admission_policy_test {
namespace {

const geometry shape{.layers = 3, .experts = 9, .top_k = 2};

template <class Admission>
std::uint64_t hash_of(typename Admission::config admission) {
  pager<lru, Admission> pages(
      {.layout = pool_layout::shared(shape, 7).value(), .admission = std::move(admission)});
  auto plan = pages.make_plan();
  support::random_source random(7);
  for (step_id step = 0; step < 200; ++step)
    for (const auto layer : each<layer_id>(shape.layers)) {
      const std::vector<std::int32_t> ids{random.id_below(9), random.id_below(9)};
      routing_view view;
      view.layer = layer;
      view.step = step;
      view.experts = ids;
      EXPECT_EQ(pages.serve(view, plan, [](const visit_group&) {}), status::ok);
    }
  return pages.decision_hash();
}

template <class P>
void decides_as_it_would_alone(typename P::config options = {}) {
  EXPECT_EQ(hash_of<any_admission_policy>(any_admission_policy::holding<P>(options)),
            hash_of<P>(options))
      << P::name;
}

TEST(any_admission_policy, decides_as_the_policy_that_it_holds) {
  decides_as_it_would_alone<always>();
  decides_as_it_would_alone<after_n_uses>();
  decides_as_it_would_alone<budgeted>({.fills_per_visit = 1});
  EXPECT_NE(hash_of<budgeted>({.fills_per_visit = 1}), hash_of<always>({}));
}

TEST(any_admission_policy, knows_its_held_policy_and_refuses_like_it) {
  const auto layout = pool_layout::shared(shape, 7).value();
  EXPECT_EQ(any_admission_policy(layout, any_admission_policy::holding<budgeted>()).held_name(),
            "budgeted");
  EXPECT_TRUE(any_admission_policy::holding<after_n_uses>({.uses = 0}).validate());
}

}  // namespace
}  // namespace hotset::any_admission_policy_test
