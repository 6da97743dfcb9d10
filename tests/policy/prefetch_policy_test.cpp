// SPDX-License-Identifier: Apache-2.0
#include "hotset/policy/prefetch_policy.hpp"

#include <gtest/gtest.h>

namespace hotset::prefetch_policy_test {
namespace {

/// A minimal type that satisfies the concept; each test below removes one member.
struct archetype {
  struct config {
    [[nodiscard]] validation validate() const { return std::nullopt; }
  };
  static constexpr std::string_view name = "archetype";
  static constexpr prefetch_traits traits{};
  archetype(const geometry&, const config&) {}
  [[nodiscard]] std::int32_t depth() const noexcept { return 1; }
  [[nodiscard]] std::size_t most_requests() const noexcept { return 0; }
  void observe(const routing_view&) noexcept {}
  std::size_t propose(const routing_view&, const forecast&, std::span<prefetch_request>) noexcept {
    return 0;
  }
};
struct throwing_observation : archetype {
  using archetype::archetype;
  void observe(const routing_view&) {}
};
struct throwing_proposal : archetype {
  using archetype::archetype;
  std::size_t propose(const routing_view&, const forecast&, std::span<prefetch_request>) {
    return 0;
  }
};
struct counts_in_int : archetype {
  using archetype::archetype;
  int propose(const routing_view&, const forecast&, std::span<prefetch_request>) noexcept {
    return 0;
  }
};
struct sees_no_forecast : archetype {
  using archetype::archetype;
  std::size_t propose(const routing_view&, std::span<prefetch_request>) noexcept { return 0; }
};
struct writes_keys : archetype {
  using archetype::archetype;
  std::size_t propose(const routing_view&, const forecast&, std::span<expert_key>) noexcept {
    return 0;
  }
};
struct depth_in_size : archetype {
  using archetype::archetype;
  [[nodiscard]] std::size_t depth() const noexcept { return 1; }
};
struct throwing_depth : archetype {
  using archetype::archetype;
  [[nodiscard]] std::int32_t depth() const { return 1; }
};
struct boundless : archetype {
  using archetype::archetype;
  void most_requests() const noexcept {}
};
struct throwing_bound : archetype {
  using archetype::archetype;
  [[nodiscard]] std::size_t most_requests() const { return 0; }
};
struct has_no_traits : archetype {
  using archetype::archetype;
  void traits();
};

TEST(prefetch_policy, takes_the_least_and_nothing_that_lacks_a_part_of_it) {
  EXPECT_TRUE(prefetch_policy<archetype>);
  EXPECT_FALSE(prefetch_policy<throwing_observation>);
  EXPECT_FALSE(prefetch_policy<throwing_proposal>);
  EXPECT_FALSE(prefetch_policy<counts_in_int>);
  EXPECT_FALSE(prefetch_policy<sees_no_forecast>);
  EXPECT_FALSE(prefetch_policy<writes_keys>);
  EXPECT_FALSE(prefetch_policy<depth_in_size>);
  EXPECT_FALSE(prefetch_policy<throwing_depth>);
  EXPECT_FALSE(prefetch_policy<boundless>);
  EXPECT_FALSE(prefetch_policy<throwing_bound>);
  EXPECT_FALSE(prefetch_policy<has_no_traits>);
}

}  // namespace
}  // namespace hotset::prefetch_policy_test
