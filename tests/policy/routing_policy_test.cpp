// SPDX-License-Identifier: Apache-2.0
#include "hotset/policy/routing_policy.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "hotset/routing/cache_aware.hpp"
#include "hotset/routing/router_order.hpp"

namespace hotset::routing_policy_test {
namespace {

/// A minimal type that satisfies the concept; each test below removes one member.
struct archetype {
  struct config {
    [[nodiscard]] validation validate() const { return std::nullopt; }
  };
  static constexpr std::string_view name = "archetype";
  static constexpr routing_traits traits{};
  archetype(const geometry&, const config&) {}
  status route(const routing_view&, const residency_view&, std::span<expert_id>,
               std::span<float>) noexcept {
    return status::ok;
  }
};
struct throwing : archetype {
  using archetype::archetype;
  status route(const routing_view&, const residency_view&, std::span<expert_id>, std::span<float>) {
    return status::ok;
  }
};
struct answers_bool : archetype {
  using archetype::archetype;
  bool route(const routing_view&, const residency_view&, std::span<expert_id>,
             std::span<float>) noexcept {
    return true;
  }
};
struct writes_no_weights : archetype {
  using archetype::archetype;
  status route(const routing_view&, const residency_view&, std::span<expert_id>,
               std::span<const double>) noexcept {
    return status::ok;
  }
};
struct has_no_traits : archetype {
  using archetype::archetype;
  void traits();
};

TEST(routing_policy, takes_the_least_and_nothing_that_lacks_a_part_of_it) {
  EXPECT_TRUE(routing_policy<archetype>);
  EXPECT_FALSE(routing_policy<throwing>);
  EXPECT_FALSE(routing_policy<answers_bool>);
  EXPECT_FALSE(routing_policy<writes_no_weights>);
  EXPECT_FALSE(routing_policy<has_no_traits>);
}

static_assert(std::movable<any_routing_policy> && !std::copyable<any_routing_policy>);
static_assert(!any_routing_policy::traits.is_exact && any_routing_policy::traits.needs_logits);

const geometry shape{.layers = 1, .experts = 4, .top_k = 2};

TEST(any_routing_policy, acts_like_the_held_policy) {
  any_routing_policy policy(shape, any_routing_policy::holding<cache_aware>({.lambda = 0.5}));
  EXPECT_EQ(policy.held_name(), "cache_aware");
  const std::vector<std::int32_t> experts{0, 1};
  const std::vector<float> logits{3, 2, 1, 0};
  const std::vector<slot_id> row{no_slot, no_slot, 0_slot, no_slot};
  std::vector<expert_id> ids(2, 9_expert);
  std::vector<float> weights(2, 9.0F);
  routing_view view;
  view.experts = experts;
  EXPECT_EQ(policy.route(view, {row}, ids, weights), status::invalid_visit);
  view.logits = logits;
  EXPECT_EQ(policy.route(view, {row}, ids, weights), status::ok);
  EXPECT_EQ(ids, (std::vector<expert_id>{0_expert, 2_expert}));
  EXPECT_FLOAT_EQ(weights[0] + weights[1], 1.0F);
}

TEST(any_routing_policy, has_the_held_policys_traits_at_run_time) {
  const any_routing_policy order{router_order(shape)};
  EXPECT_TRUE(order.facts().is_exact && !order.facts().needs_logits);
  const any_routing_policy aware{cache_aware(shape, {})};
  EXPECT_TRUE(!aware.facts().is_exact && aware.facts().needs_logits);
}

}  // namespace
}  // namespace hotset::routing_policy_test
