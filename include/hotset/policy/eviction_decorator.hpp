// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Base of every decorator of an eviction policy. It owns the decorated policy and forwards calls.

#include "hotset/policy/eviction_policy.hpp"

namespace hotset {

namespace detail {
/// Traits of a decorator's class: those of the inner policy and every optional hook, to forward all calls.
[[nodiscard]] constexpr eviction_traits decorator_of(eviction_traits inner) noexcept {
  inner.wants_requests = inner.wants_routes = inner.wants_forecasts = true;
  return inner;
}
/// The traits with moves_by_itself set.
[[nodiscard]] constexpr eviction_traits moving(eviction_traits all) noexcept {
  all.moves_by_itself = true;
  return all;
}
}  // namespace detail

/// Owns the decorated policy and forwards the calls that a decorator does not change.
template <eviction_policy P>
class eviction_decorator {
 public:
  void on_prefetch(const prefetch_event& e) noexcept { inner_.on_prefetch(e); }
  void on_request(const prefetch_event& e) noexcept { notify_request(inner_, e); }
  void on_routed(const routing_view& view) noexcept { notify_routed(inner_, view); }
  void on_forecast(const visit_context& context, const forecast& expected) noexcept {
    notify_forecast(inner_, context, expected);
  }

 protected:
  eviction_decorator(const pool_layout& layout, const typename P::config& options)
      : inner_(layout, options) {}

  P inner_;
};

}  // namespace hotset
