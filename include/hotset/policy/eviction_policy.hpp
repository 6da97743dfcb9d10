// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Requirements on a policy that chooses the slots to evict.
///
/// | expression | meaning |
/// |---|---|
/// | `typename P::config` | aggregate of parameters with `validate()`; `no_options` has none |
/// | `P(layout, config)` | built for the slots and pools of a `pool_layout`; allocates all memory |
/// | `P::name` | the policy's name in the field, used by `--eviction` |
/// | `P::traits` | an `eviction_traits`: the optional hooks that it has, and its other properties |
/// | `on_visit(event)` | a visit takes place, and its copies have slots; see `visit_event` |
/// | `on_prefetch(event)` | a copy for a later visit or a warm start has a slot that was free |
/// | `on_evict(slot, key)` | outside a visit, the slot loses its key: to a prefetch, a quota, a failure |
/// | `on_move(from, to)` | `to`, a free slot of the same pool, now holds the key of `from`; nothing else changed |
/// | `select_victims(context, eligible, out)` | writes slots to evict in order; returns their number. See below |
///
/// A config also has `validate(shape)` if the model's geometry matters.
///
/// `select_victims` writes up to `out.size()` distinct eligible slots of `context.pool` in eviction order.
/// - It returns fewer only if no more are eligible. Elements of `out` after the returned count are unspecified.
/// - A request for n slots returns the first n of a larger request.
/// - The relative order of two slots does not depend on other eligible slots.
/// - Repeated calls return the same answer. The policy may repair its own index.
///
/// Hooks that a policy has if and only if its traits say so:
///
/// | hook | meaning |
/// |---|---|
/// | `on_request(event)` | a prefetcher requested a key that is already resident |
/// | `on_routed(view)` | the routing of a visit before its victims are chosen, or a view that opens a step |
/// | `on_forecast(context, expected)` | the forecast for the layers after the context's layer |
///
/// `on_routed` is called again if a visit is planned again. Only `on_visit` confirms the visit.
/// A policy chosen at run time has `facts()`, the traits of the held policy. Its class traits are an upper bound.
/// Every call is `noexcept`, allocates nothing, and reads no clock.
/// `static_assert(is_eviction_policy<P>())` names the requirement that a class misses.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "hotset/core/error.hpp"
#include "hotset/core/forecast.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/core/slot_mask.hpp"
#include "hotset/core/visit_event.hpp"
#include "hotset/policy/policy_config.hpp"

// clang-format 14 splits compound requirements badly.
// clang-format off
namespace hotset {

/// Traits of an eviction policy's class. A policy must set them explicitly; there is no default.
struct eviction_traits {
  bool wants_requests = false;   ///< has `on_request`
  bool wants_routes = false;     ///< has `on_routed`
  bool wants_forecasts = false;  ///< has `on_forecast`
  bool needs_weights = false;  ///< reads the gate weights of a visit
  bool needs_future = false;  ///< offline: its config takes the future uses
  bool moves_by_itself = false;  ///< its order may change between visits without an event
  std::size_t fewest_precisions = 1;
  std::size_t most_precisions = std::numeric_limits<std::uint8_t>::max();
  /// Calls a program's functions: its order may depend on the eligible slots, so they never include the visit's own. It
  /// may fail and return fewer victims; then the plan fails.
  bool is_called = false;
};

namespace detail {

// Each required or optional hook with its exact signature.
template <class P>
concept has_on_visit = requires(P& policy, const visit_event& event) {
  { policy.on_visit(event) } noexcept -> std::same_as<void>;
};
template <class P>
concept has_on_prefetch = requires(P& policy, const prefetch_event& event) {
  { policy.on_prefetch(event) } noexcept -> std::same_as<void>;
};
template <class P>
concept has_on_evict = requires(P& policy, slot_id slot, expert_key key) {
  { policy.on_evict(slot, key) } noexcept -> std::same_as<void>;
};
template <class P>
concept has_on_move = requires(P& policy, slot_id slot) {
  { policy.on_move(slot, slot) } noexcept -> std::same_as<void>;
};
template <class P>
concept has_on_request = requires(P& policy, const prefetch_event& event) {
  { policy.on_request(event) } noexcept -> std::same_as<void>;
};
template <class P>
concept has_on_routed = requires(P& policy, const routing_view& view) {
  { policy.on_routed(view) } noexcept -> std::same_as<void>;
};
template <class P>
concept has_on_forecast = requires(P& policy, const visit_context& context, const forecast& expected) {
  { policy.on_forecast(context, expected) } noexcept -> std::same_as<void>;
};
template <class P>
concept selects_victims =
    requires(P& policy, const visit_context& context, const slot_mask& eligible, std::span<slot_id> out) {
      { policy.select_victims(context, eligible, out) } noexcept -> std::same_as<std::size_t>;
    };
template <class P>
concept has_config = requires(const typename P::config& config) {
  { config.validate() } -> std::same_as<validation>;
};
template <class P>
concept has_traits = requires { requires std::same_as<decltype(P::traits), const eviction_traits>; };

// Each optional hook by name, with any signature.
template <class P>
concept declares_on_request = has_on_request<P> || requires { &P::on_request; };
template <class P>
concept declares_on_routed = has_on_routed<P> || requires { &P::on_routed; };
template <class P>
concept declares_on_forecast = has_on_forecast<P> || requires { &P::on_forecast; };

}  // namespace detail

/// An optional hook must exist with its exact signature if the traits say so, and must not exist otherwise.
template <class P>
concept eviction_policy =
    policy_for<P, pool_layout, eviction_traits> && detail::has_on_visit<P> && detail::has_on_prefetch<P> &&
    detail::has_on_evict<P> && detail::has_on_move<P> && detail::selects_victims<P> &&
    (P::traits.wants_requests ? detail::has_on_request<P> : !detail::declares_on_request<P>) &&
    (P::traits.wants_routes ? detail::has_on_routed<P> : !detail::declares_on_routed<P>) &&
    (P::traits.wants_forecasts ? detail::has_on_forecast<P> : !detail::declares_on_forecast<P>);

/// For a static_assert: true for an eviction policy; otherwise compilation fails with a message that names the missing
/// part.
template <class P>
consteval bool is_eviction_policy() {
  static_assert(std::move_constructible<P>, "an eviction policy can be moved");
  static_assert(detail::has_config<P>,
                "an eviction policy has a type `config` whose `validate() const` returns a validation; "
                "`using config = hotset::no_options;` is one");
  if constexpr (detail::has_config<P>)
    static_assert(std::constructible_from<P, const pool_layout&, const typename P::config&>,
                  "an eviction policy is built from (const pool_layout&, const config&)");
  static_assert(requires { { P::name } -> std::convertible_to<std::string_view>; },
                "an eviction policy has a static constexpr std::string_view `name`");
  static_assert(detail::has_on_visit<P>, "an eviction policy has void on_visit(const visit_event&) noexcept");
  static_assert(detail::has_on_prefetch<P>, "an eviction policy has void on_prefetch(const prefetch_event&) noexcept");
  static_assert(detail::has_on_evict<P>, "an eviction policy has void on_evict(slot_id, expert_key) noexcept");
  static_assert(detail::has_on_move<P>, "an eviction policy has void on_move(slot_id from, slot_id to) noexcept");
  static_assert(detail::selects_victims<P>,
                "an eviction policy has std::size_t select_victims(const visit_context&, const slot_mask&, "
                "std::span<slot_id>) noexcept");
  static_assert(detail::has_traits<P>,
                "an eviction policy has `static constexpr hotset::eviction_traits traits{...}`, which names its hooks and needs");
  if constexpr (detail::has_traits<P>) {
    static_assert(!P::traits.wants_requests || detail::has_on_request<P>,
                  "its traits say wants_requests, and it has no void on_request(const prefetch_event&) noexcept");
    static_assert(P::traits.wants_requests || !detail::declares_on_request<P>,
                  "it has an on_request without a caller: say .wants_requests = true in its traits");
    static_assert(!P::traits.wants_routes || detail::has_on_routed<P>,
                  "its traits say wants_routes, and it has no void on_routed(const routing_view&) noexcept");
    static_assert(P::traits.wants_routes || !detail::declares_on_routed<P>,
                  "it has an on_routed without a caller: say .wants_routes = true in its traits");
    static_assert(!P::traits.wants_forecasts || detail::has_on_forecast<P>,
                  "its traits say wants_forecasts, and it has no void on_forecast(const visit_context&, "
                  "const forecast&) noexcept");
    static_assert(P::traits.wants_forecasts || !detail::declares_on_forecast<P>,
                  "it has an on_forecast without a caller: say .wants_forecasts = true in its traits");
  }
  return eviction_policy<P>;
}

// Helpers for runtimes and decorators, which accept any policy. They do nothing if the policy lacks the hook.

/// Calls on_request if the policy has it.
template <class P>
void notify_request([[maybe_unused]] P& policy, [[maybe_unused]] const prefetch_event& event) noexcept {
  if constexpr (P::traits.wants_requests) policy.on_request(event);
}
/// Calls on_routed if the policy has it.
template <class P>
void notify_routed([[maybe_unused]] P& policy, [[maybe_unused]] const routing_view& view) noexcept {
  if constexpr (P::traits.wants_routes) policy.on_routed(view);
}
/// Calls on_forecast if the policy has it.
template <class P>
void notify_forecast([[maybe_unused]] P& policy, [[maybe_unused]] const visit_context& context,
                   [[maybe_unused]] const forecast& expected) noexcept {
  if constexpr (P::traits.wants_forecasts) policy.on_forecast(context, expected);
}

}  // namespace hotset
