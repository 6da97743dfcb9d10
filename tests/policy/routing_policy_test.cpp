// SPDX-License-Identifier: Apache-2.0
#include "hotset/policy/routing_policy.hpp"

#include <gtest/gtest.h>

namespace hotset::routing_policy_test {
namespace {

/// The least that satisfies the concept; what follows takes one thing away.
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
struct nameless : archetype {
  using archetype::archetype;
  void name();
};
struct unchecked : archetype {
  struct config {};
  unchecked(const geometry&, const config&);
};
struct not_built_for_a_model : archetype {
  explicit not_built_for_a_model(const config& c);
};
struct immovable : archetype {
  using archetype::archetype;
  immovable(immovable&&) = delete;
};

TEST(routing_policy, takes_the_least_and_nothing_that_lacks_a_part_of_it) {
  EXPECT_TRUE(routing_policy<archetype>);
  EXPECT_FALSE(routing_policy<throwing>);
  EXPECT_FALSE(routing_policy<answers_bool>);
  EXPECT_FALSE(routing_policy<writes_no_weights>);
  EXPECT_FALSE(routing_policy<has_no_traits>);
  EXPECT_FALSE(routing_policy<nameless>);
  EXPECT_FALSE(routing_policy<unchecked>);
  EXPECT_FALSE(routing_policy<not_built_for_a_model>);
  EXPECT_FALSE(routing_policy<immovable>);
}

}  // namespace
}  // namespace hotset::routing_policy_test
