// SPDX-License-Identifier: Apache-2.0
#include "hotset/concepts/prefetch_policy.hpp"

#include <gtest/gtest.h>

namespace hotset {
namespace {

/// The least that satisfies the concept; what follows takes one thing away.
struct archetype {
  struct config {
    [[nodiscard]] validation validate() const { return std::nullopt; }
  };
  static constexpr std::string_view name = "archetype";
  static constexpr prefetch_traits traits{};
  archetype(const geometry&, const config&) {}
  [[nodiscard]] forecast_need needs() const noexcept { return forecast_need::nothing; }
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
struct forgetful_of_needs : archetype {
  using archetype::archetype;
  [[nodiscard]] bool needs() const noexcept { return true; }
};
struct throwing_needs : archetype {
  using archetype::archetype;
  [[nodiscard]] forecast_need needs() const { return forecast_need::nothing; }
};
struct needs_a_change : archetype {
  using archetype::archetype;
  [[nodiscard]] forecast_need needs() noexcept { return forecast_need::nothing; }
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
struct not_built_for_a_geometry : archetype {
  explicit not_built_for_a_geometry(const config& c);
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
struct immovable : archetype {
  using archetype::archetype;
  immovable(immovable&&) = delete;
};

static_assert(prefetch_policy<archetype>);
static_assert(!prefetch_policy<throwing_observation>);
static_assert(!prefetch_policy<throwing_proposal>);
static_assert(!prefetch_policy<counts_in_int>);
static_assert(!prefetch_policy<sees_no_forecast>);
static_assert(!prefetch_policy<writes_keys>);
static_assert(!prefetch_policy<forgetful_of_needs>);
static_assert(!prefetch_policy<throwing_needs>);
static_assert(!prefetch_policy<needs_a_change>);
static_assert(!prefetch_policy<depth_in_size>);
static_assert(!prefetch_policy<throwing_depth>);
static_assert(!prefetch_policy<boundless>);
static_assert(!prefetch_policy<throwing_bound>);
static_assert(!prefetch_policy<not_built_for_a_geometry>);
static_assert(!prefetch_policy<has_no_traits>);
static_assert(!prefetch_policy<nameless>);
static_assert(!prefetch_policy<unchecked>);
static_assert(!prefetch_policy<immovable>);

TEST(prefetch_policy, is_checked_when_this_file_is_compiled) { SUCCEED(); }

}  // namespace
}  // namespace hotset
