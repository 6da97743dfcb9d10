// SPDX-License-Identifier: Apache-2.0
#include "hotset/policy/miss_policy.hpp"

#include <gtest/gtest.h>

namespace hotset::miss_policy_test {
namespace {

/// A minimal type that satisfies the concept; each test below removes one member.
struct archetype {
  struct config {
    [[nodiscard]] validation validate() const { return std::nullopt; }
    [[nodiscard]] validation validate(const geometry&) const { return std::nullopt; }
  };
  static constexpr std::string_view name = "archetype";
  static constexpr miss_traits traits{};
  archetype(const geometry&, const config&) {}
  void decide(std::span<const miss>, const routing_view&, const residency_view&,
              std::span<expert_id>, std::span<miss_decision>) noexcept {}
  void observe(std::span<const float>) noexcept {}
  precision_id prefetch_precision() noexcept { return 0_precision; }
};
struct throwing_choice : archetype {
  using archetype::archetype;
  void decide(std::span<const miss>, const routing_view&, const residency_view&,
              std::span<expert_id>, std::span<miss_decision>) {}
};
struct throwing_observer : archetype {
  using archetype::archetype;
  void observe(std::span<const float>) {}
};
struct sees_no_ids : archetype {
  using archetype::archetype;
  void decide(std::span<const miss>, const routing_view&, const residency_view&,
              std::span<miss_decision>) noexcept {}
};
struct changes_its_misses : archetype {
  using archetype::archetype;
  void decide(std::span<miss>, const routing_view&, const residency_view&, std::span<expert_id>,
              std::span<miss_decision>) noexcept {}
};
struct precision_in_int : archetype {
  using archetype::archetype;
  int prefetch_precision() noexcept { return 0; }
};
struct has_no_traits : archetype {
  using archetype::archetype;
  void traits();
};

TEST(miss_policy, takes_the_least_and_nothing_that_lacks_a_part_of_it) {
  EXPECT_TRUE(miss_policy<archetype>);
  EXPECT_FALSE(miss_policy<throwing_choice>);
  EXPECT_FALSE(miss_policy<throwing_observer>);
  EXPECT_FALSE(miss_policy<sees_no_ids>);
  EXPECT_FALSE(miss_policy<changes_its_misses>);
  EXPECT_FALSE(miss_policy<precision_in_int>);
  EXPECT_FALSE(miss_policy<has_no_traits>);
}

}  // namespace
}  // namespace hotset::miss_policy_test
