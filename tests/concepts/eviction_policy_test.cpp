// SPDX-License-Identifier: Apache-2.0
#include "hotset/concepts/eviction_policy.hpp"

#include <gtest/gtest.h>

#include "hotset/core/policy/no_options.hpp"

namespace hotset::eviction_policy_test {
namespace {

/// The least that satisfies the concept; what follows takes one thing away.
struct archetype {
  using config = no_options;
  static constexpr std::string_view name = "archetype";
  static constexpr eviction_traits traits{};
  archetype(const pool_layout&, const config&) {}
  void on_hit(const access&) noexcept {}
  void on_fill(const access&) noexcept {}
  void on_evict(slot_id, expert_key) noexcept {}
  void on_move(slot_id, slot_id) noexcept {}
  std::size_t select_victims(const visit_context&, const slot_mask&, std::span<slot_id>) noexcept {
    return 0;
  }
};
struct throwing_hit : archetype {
  using archetype::archetype;
  void on_hit(const access&) {}
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
struct not_built_for_a_layout : archetype {
  explicit not_built_for_a_layout(const config& c);
};
struct nameless : archetype {
  using archetype::archetype;
  void name();
};
struct unchecked : archetype {
  struct config {};
  unchecked(const pool_layout&, const config&);
};
struct immovable : archetype {
  using archetype::archetype;
  immovable(immovable&&) = delete;
};
struct cannot_be_moved_about : archetype {
  using archetype::archetype;
  void on_move(slot_id) noexcept {}
};

// Traits are written down, and are traits.
struct has_no_traits : archetype {
  using archetype::archetype;
  void traits();
};
struct has_a_flag : archetype {
  using archetype::archetype;
  static constexpr bool traits = true;
};
struct changes_its_traits : archetype {
  using archetype::archetype;
  [[maybe_unused]] inline static eviction_traits traits{};
};

// What was satisfied once, and silently wrong: each optional hook is what the traits say, or nothing.
struct misspelt_visit : archetype {
  using archetype::archetype;
  static constexpr eviction_traits traits{.hears_visits = true};
  void on_vist(const visit_context&, std::span<const slot_id>) noexcept {}
};
struct visit_without_the_weights_it_needs : archetype {
  using archetype::archetype;
  static constexpr eviction_traits traits{.hears_visits = true, .needs_weights = true};
  void on_visit(const visit_context&, std::span<const slot_id>) noexcept {}
};
struct visit_with_weights_that_it_does_not_need : archetype {
  using archetype::archetype;
  static constexpr eviction_traits traits{.hears_visits = true};
  void on_visit(const visit_context&, std::span<const slot_id>, std::span<const double>) noexcept {}
};
struct visit_with_weights : archetype {
  using archetype::archetype;
  static constexpr eviction_traits traits{.hears_visits = true, .needs_weights = true};
  void on_visit(const visit_context&, std::span<const slot_id>,
                std::span<const double> weights) noexcept {
    heard = weights.back();
  }
  double heard = 0.0;
};
struct replacements_without_visits : archetype {
  using archetype::archetype;
  static constexpr eviction_traits traits{.hears_replacements = true};
  void on_replace(const visit_context&, std::span<const fill>) noexcept {}
};
struct replacement_that_nobody_calls : archetype {
  using archetype::archetype;
  void on_replace(const visit_context&, std::span<const fill>) noexcept {}
};
struct request_that_is_changed : archetype {
  using archetype::archetype;
  static constexpr eviction_traits traits{.hears_requests = true};
  void on_request(access&) noexcept {}
};
struct request_that_nobody_calls : archetype {
  using archetype::archetype;
  void on_request(access&) noexcept {}
};
struct visit_that_nobody_calls : archetype {
  using archetype::archetype;
  template <class Slots>
  void on_visit(const visit_context&, Slots) noexcept {}
};
struct step_that_nobody_calls : archetype {
  using archetype::archetype;
  void on_step(step_id, layer_id) noexcept {}
};
struct bypass_that_nobody_calls : archetype {
  using archetype::archetype;
  void on_bypass(const access&) noexcept {}
  void on_bypass(int) noexcept {}
};
struct route_that_nobody_calls : archetype {
  using archetype::archetype;
  void on_routed(const routing_view&) noexcept {}
};
struct route_by_context : archetype {
  using archetype::archetype;
  static constexpr eviction_traits traits{.hears_routes = true};
  void on_routed(const visit_context&) noexcept {}
};
struct forecast_that_nobody_calls : archetype {
  using archetype::archetype;
  void on_forecast(const visit_context&, const forecast&) noexcept {}
};
struct forecast_without_its_visit : archetype {
  using archetype::archetype;
  static constexpr eviction_traits traits{.hears_forecasts = true};
  void on_forecast(const forecast&) noexcept {}
};
struct throwing_step : archetype {
  using archetype::archetype;
  static constexpr eviction_traits traits{.hears_steps = true};
  void on_step(step_id, layer_id) {}
};
struct bypass_that_answers : archetype {
  using archetype::archetype;
  static constexpr eviction_traits traits{.hears_bypasses = true};
  bool on_bypass(const access&) noexcept { return true; }
};
struct hears_all : archetype {
  using archetype::archetype;
  static constexpr eviction_traits traits{.hears_steps = true,
                                          .hears_bypasses = true,
                                          .hears_requests = true,
                                          .hears_visits = true,
                                          .hears_routes = true,
                                          .hears_forecasts = true};
  void on_step(step_id, layer_id) noexcept { ++heard; }
  void on_bypass(const access&) noexcept { ++heard; }
  void on_request(const access&) noexcept { ++heard; }
  void on_visit(const visit_context&, std::span<const slot_id>) noexcept { ++heard; }
  void on_routed(const routing_view&) noexcept { ++heard; }
  void on_forecast(const visit_context&, const forecast&) noexcept { ++heard; }
  int heard = 0;
};
struct sealed final {
  using config = no_options;
  static constexpr std::string_view name = "sealed";
  static constexpr eviction_traits traits{.hears_steps = true};
  sealed(const pool_layout&, const config&) {}
  void on_step(step_id, layer_id) noexcept {}
  void on_hit(const access&) noexcept {}
  void on_fill(const access&) noexcept {}
  void on_evict(slot_id, expert_key) noexcept {}
  void on_move(slot_id, slot_id) noexcept {}
  std::size_t select_victims(const visit_context&, const slot_mask&, std::span<slot_id>) noexcept {
    return 0;
  }
};

static_assert(is_eviction_policy<archetype>());
static_assert(is_eviction_policy<hears_all>());
static_assert(is_eviction_policy<sealed>());
static_assert(!eviction_policy<throwing_hit>);
static_assert(!eviction_policy<throwing_choice>);
static_assert(!eviction_policy<counts_in_int>);
static_assert(!eviction_policy<not_built_for_a_layout>);
static_assert(!eviction_policy<nameless>);
static_assert(!eviction_policy<unchecked>);
static_assert(!eviction_policy<immovable>);
static_assert(!eviction_policy<cannot_be_moved_about>);
static_assert(!eviction_policy<has_no_traits>);
static_assert(!eviction_policy<has_a_flag>);
static_assert(!eviction_policy<changes_its_traits>);
static_assert(is_eviction_policy<visit_with_weights>());
static_assert(!eviction_policy<visit_without_the_weights_it_needs>);
static_assert(!eviction_policy<visit_with_weights_that_it_does_not_need>);
static_assert(!eviction_policy<replacements_without_visits>);
static_assert(!eviction_policy<replacement_that_nobody_calls>);
static_assert(!eviction_policy<misspelt_visit>);
static_assert(!eviction_policy<request_that_is_changed>);
static_assert(!eviction_policy<request_that_nobody_calls>);
static_assert(!eviction_policy<visit_that_nobody_calls>);
static_assert(!eviction_policy<step_that_nobody_calls>);
static_assert(!eviction_policy<bypass_that_nobody_calls>);
static_assert(!eviction_policy<route_that_nobody_calls>);
static_assert(!eviction_policy<route_by_context>);
static_assert(!eviction_policy<forecast_that_nobody_calls>);
static_assert(!eviction_policy<forecast_without_its_visit>);
static_assert(!eviction_policy<throwing_step>);
static_assert(!eviction_policy<bypass_that_answers>);

TEST(eviction_policy, who_takes_any_policy_tells_it_what_it_hears) {
  const auto layout = pool_layout::shared({.layers = 1, .experts = 2, .top_k = 1}, 1).value();
  hears_all all(layout, {});
  tell_step(all, 1, 0_layer);
  tell_bypass(all, {});
  tell_request(all, {});
  tell_routed(all, {});
  tell_forecast(all, {}, {});
  tell_visit(all, {}, {}, {});
  EXPECT_EQ(all.heard, 6);
  visit_with_weights weighed(layout, {});
  const std::vector<slot_id> slots{0_slot};
  const std::vector<double> weights{0.25};
  tell_visit(weighed, {}, slots, weights);
  EXPECT_EQ(weighed.heard, 0.25);
  archetype none(layout, {});
  tell_step(none, 1, 0_layer);
  tell_bypass(none, {});
  tell_request(none, {});
  tell_routed(none, {});
  tell_forecast(none, {}, {});
  tell_visit(none, {}, slots, weights);
}

}  // namespace
}  // namespace hotset::eviction_policy_test
