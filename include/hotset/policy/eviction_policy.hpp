// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Requirements on a policy that says which slot to give up.
///
/// | expression | meaning |
/// |---|---|
/// | `typename P::config` | aggregate of parameters with `validate()`, and `validate(shape)` where a model's geometry matters; `no_options` has none |
/// | `P(layout, config)` | built for the slots and pools of a `pool_layout`; all memory is taken here |
/// | `P::name` | the field's name of it, as in `--eviction` |
/// | `P::traits` | an `eviction_traits`: which of the hooks below it has, and what else is true of it |
/// | `on_visit(event)` | a visit takes place: its copies have their slots, which it uses with those that were there. See `visit_event` |
/// | `on_prefetch(event)` | a copy for a later visit, or of a warm start, has its slot, which held nothing |
/// | `on_evict(slot, key)` | outside of a visit the slot loses its key: to a prefetch, a quota, a failure |
/// | `on_move(from, to)` | what `from` held is in `to` now, a slot of the same pool that held nothing: nothing else has changed |
/// | `select_victims(context, eligible, out)` | writes up to `out.size()` distinct eligible slots of `context.pool` in the order of eviction; returns how many. What follows them in `out` means nothing. Fewer only when no more are eligible. Asking for n gives the first n of asking for more; the order of two slots does not depend on what else is eligible; asking twice gives the same answer. It may repair its own index. |
///
/// Hooks that a policy has if and only if its traits say so:
///
/// | hook | meaning |
/// |---|---|
/// | `on_request(event)` | a prefetcher asked for a key that is resident already |
/// | `on_routed(view)` | what a visit routed, before its victims are chosen, or what is about to be, where the view opens a step. A visit that is planned again is told again: only `on_visit` says that it takes place |
/// | `on_forecast(context, expected)` | what is expected of the layers after the context's |
///
/// A policy that is chosen at run time has `facts()`: the traits of what it holds; its own are then the most that these may be.
/// Every call is `noexcept`, allocates nothing, and reads no clock.
/// `static_assert(is_eviction_policy<P>())` says in a sentence what a class lacks.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <type_traits>

#include "hotset/core/error.hpp"
#include "hotset/core/forecast.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/core/slot_mask.hpp"
#include "hotset/core/visit_event.hpp"
#include "hotset/policy/policy_config.hpp"

// clang-format 14 tears compound requirements apart.
// clang-format off
namespace hotset {

/// What is true of an eviction policy's class. Has no default on purpose: a policy writes it down.
struct eviction_traits {
  bool hears_requests = false;   ///< has `on_request`
  bool hears_routes = false;     ///< has `on_routed`
  bool hears_forecasts = false;  ///< has `on_forecast`
  bool needs_weights = false;    ///< reads the weights of a visit
  bool needs_future = false;     ///< its config takes the uses to come: offline
  bool moves_by_itself = false;  ///< its order may change from visit to visit though it is told nothing
  std::size_t fewest_precisions = 1;
  std::size_t most_precisions = std::numeric_limits<std::uint8_t>::max();
};

namespace detail {

// Each hook, callable as it is called.
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

// Each optional hook by its name, whatever its signature.
template <class P>
concept declares_on_request = has_on_request<P> || requires { &P::on_request; };
template <class P>
concept declares_on_routed = has_on_routed<P> || requires { &P::on_routed; };
template <class P>
concept declares_on_forecast = has_on_forecast<P> || requires { &P::on_forecast; };

}  // namespace detail

/// Each optional hook is there, callable as it is called, if and only if the traits say so.
template <class P>
concept eviction_policy =
    policy_for<P, pool_layout, eviction_traits> && detail::has_on_visit<P> && detail::has_on_prefetch<P> &&
    detail::has_on_evict<P> && detail::has_on_move<P> && detail::selects_victims<P> &&
    (P::traits.hears_requests ? detail::has_on_request<P> : !detail::declares_on_request<P>) &&
    (P::traits.hears_routes ? detail::has_on_routed<P> : !detail::declares_on_routed<P>) &&
    (P::traits.hears_forecasts ? detail::has_on_forecast<P> : !detail::declares_on_forecast<P>);

/// For a static_assert: true of an eviction policy; of anything else, compilation ends with what it lacks.
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
                "an eviction policy has `static constexpr hotset::eviction_traits traits{...}`, which says what it hears and needs");
  if constexpr (detail::has_traits<P>) {
    static_assert(!P::traits.hears_requests || detail::has_on_request<P>,
                  "its traits say hears_requests, and it has no void on_request(const prefetch_event&) noexcept");
    static_assert(P::traits.hears_requests || !detail::declares_on_request<P>,
                  "it has an on_request without a caller: say .hears_requests = true in its traits");
    static_assert(!P::traits.hears_routes || detail::has_on_routed<P>,
                  "its traits say hears_routes, and it has no void on_routed(const routing_view&) noexcept");
    static_assert(P::traits.hears_routes || !detail::declares_on_routed<P>,
                  "it has an on_routed without a caller: say .hears_routes = true in its traits");
    static_assert(!P::traits.hears_forecasts || detail::has_on_forecast<P>,
                  "its traits say hears_forecasts, and it has no void on_forecast(const visit_context&, "
                  "const forecast&) noexcept");
    static_assert(P::traits.hears_forecasts || !detail::declares_on_forecast<P>,
                  "it has an on_forecast without a caller: say .hears_forecasts = true in its traits");
  }
  return eviction_policy<P>;
}

// Runtimes and decorators take any policy: nothing happens if it does not have the hook.

/// Reports a request, as on_request.
template <class P>
void tell_request([[maybe_unused]] P& policy, [[maybe_unused]] const prefetch_event& event) noexcept {
  if constexpr (P::traits.hears_requests) policy.on_request(event);
}
/// Reports a view, as on_routed.
template <class P>
void tell_routed([[maybe_unused]] P& policy, [[maybe_unused]] const routing_view& view) noexcept {
  if constexpr (P::traits.hears_routes) policy.on_routed(view);
}
/// Reports a forecast, as on_forecast.
template <class P>
void tell_forecast([[maybe_unused]] P& policy, [[maybe_unused]] const visit_context& context,
                   [[maybe_unused]] const forecast& expected) noexcept {
  if constexpr (P::traits.hears_forecasts) policy.on_forecast(context, expected);
}

}  // namespace hotset
