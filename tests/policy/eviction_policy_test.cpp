// SPDX-License-Identifier: Apache-2.0
#include "hotset/policy/eviction_policy.hpp"

#include <gtest/gtest.h>

#include "hotset/policy/policy_config.hpp"

namespace hotset::eviction_policy_test {
namespace {

/// A minimal type that satisfies the concept; each test below removes one member.
struct archetype {
  using config = no_options;
  static constexpr std::string_view name = "archetype";
  static constexpr eviction_traits traits{};
  archetype(const pool_layout&, const config&) {}
  void on_visit(const visit_event&) noexcept {}
  void on_prefetch(const prefetch_event&) noexcept {}
  void on_evict(slot_id, expert_key) noexcept {}
  void on_move(slot_id, slot_id) noexcept {}
  std::size_t select_victims(const visit_context&, const slot_mask&, std::span<slot_id>) noexcept {
    return 0;
  }
};
struct throwing_visit : archetype {
  using archetype::archetype;
  void on_visit(const visit_event&) {}
};
struct throwing_prefetch : archetype {
  using archetype::archetype;
  void on_prefetch(const prefetch_event&) {}
};
struct throwing_choice : archetype {
  using archetype::archetype;
  std::size_t select_victims(const visit_context&, const slot_mask&, std::span<slot_id>) {
    return 0;
  }
};
struct counts_in_int : archetype {
  using archetype::archetype;
  int select_victims(const visit_context&, const slot_mask&, std::span<slot_id>) noexcept {
    return 0;
  }
};
struct cannot_be_moved_about : archetype {
  using archetype::archetype;
  void on_move(slot_id) noexcept {}
};

struct has_no_traits : archetype {
  using archetype::archetype;
  void traits();
};

// Types that the concept must refuse: each optional hook must match the traits or be absent.
struct visit_by_context : archetype {
  using archetype::archetype;
  void on_visit(const visit_context&) noexcept {}
};
struct request_that_is_changed : archetype {
  using archetype::archetype;
  static constexpr eviction_traits traits{.wants_requests = true};
  void on_request(prefetch_event&) noexcept {}
};
struct request_that_nobody_calls : archetype {
  using archetype::archetype;
  void on_request(prefetch_event&) noexcept {}
};
struct route_that_nobody_calls : archetype {
  using archetype::archetype;
  void on_routed(const routing_view&) noexcept {}
};
struct route_by_context : archetype {
  using archetype::archetype;
  static constexpr eviction_traits traits{.wants_routes = true};
  void on_routed(const visit_context&) noexcept {}
};
struct forecast_that_nobody_calls : archetype {
  using archetype::archetype;
  void on_forecast(const visit_context&, const forecast&) noexcept {}
};
struct forecast_without_its_visit : archetype {
  using archetype::archetype;
  static constexpr eviction_traits traits{.wants_forecasts = true};
  void on_forecast(const forecast&) noexcept {}
};
struct throwing_request : archetype {
  using archetype::archetype;
  static constexpr eviction_traits traits{.wants_requests = true};
  void on_request(const prefetch_event&) {}
};
struct request_that_answers : archetype {
  using archetype::archetype;
  static constexpr eviction_traits traits{.wants_requests = true};
  bool on_request(const prefetch_event&) noexcept { return true; }
};
struct wants_all : archetype {
  using archetype::archetype;
  static constexpr eviction_traits traits{
      .wants_requests = true, .wants_routes = true, .wants_forecasts = true};
  void on_request(const prefetch_event&) noexcept { ++heard; }
  void on_routed(const routing_view&) noexcept { ++heard; }
  void on_forecast(const visit_context&, const forecast&) noexcept { ++heard; }
  int heard = 0;
};
struct sealed final : wants_all {
  using wants_all::wants_all;
};

static_assert(is_eviction_policy<archetype>());
static_assert(is_eviction_policy<wants_all>());
static_assert(is_eviction_policy<sealed>());
static_assert(!eviction_policy<throwing_visit>);
static_assert(!eviction_policy<throwing_prefetch>);
static_assert(!eviction_policy<throwing_choice>);
static_assert(!eviction_policy<counts_in_int>);
static_assert(!eviction_policy<cannot_be_moved_about>);
static_assert(!eviction_policy<has_no_traits>);
static_assert(!eviction_policy<visit_by_context>);
static_assert(!eviction_policy<request_that_is_changed>);
static_assert(!eviction_policy<request_that_nobody_calls>);
static_assert(!eviction_policy<route_that_nobody_calls>);
static_assert(!eviction_policy<route_by_context>);
static_assert(!eviction_policy<forecast_that_nobody_calls>);
static_assert(!eviction_policy<forecast_without_its_visit>);
static_assert(!eviction_policy<throwing_request>);
static_assert(!eviction_policy<request_that_answers>);

TEST(eviction_policy, every_declared_hook_is_called) {
  const auto layout = pool_layout::shared({.layers = 1, .experts = 2, .top_k = 1}, 1).value();
  wants_all all(layout, {});
  notify_request(all, {});
  notify_routed(all, {});
  notify_forecast(all, {}, {});
  EXPECT_EQ(all.heard, 3);
  archetype none(layout, {});
  notify_request(none, {});
  notify_routed(none, {});
  notify_forecast(none, {}, {});
}

}  // namespace
}  // namespace hotset::eviction_policy_test
