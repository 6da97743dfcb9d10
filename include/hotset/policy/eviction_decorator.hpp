// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What every decorator of an eviction policy says of itself: a name that tells what it decorates, and its traits.

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

#include "hotset/policy/eviction_policy.hpp"

namespace hotset {

namespace detail {
/// "outer<inner>" at compile time.
template <std::size_t N, class P>
struct decorated_name {
  static constexpr std::size_t inner = std::string_view(P::name).size();
  std::array<char, N + inner + 1> text{};
  consteval explicit decorated_name(const char (&outer)[N]) {
    auto at = std::copy_n(outer, N - 1, text.begin());
    *at++ = '<';
    at = std::copy_n(std::string_view(P::name).begin(), inner, at);
    *at = '>';
  }
  [[nodiscard]] constexpr std::string_view view() const { return {text.data(), text.size()}; }
};
template <class P, std::size_t N>
[[nodiscard]] consteval decorated_name<N, P> decorate(const char (&outer)[N]) {
  return decorated_name<N, P>(outer);
}
/// The traits of a decorator's class: it can pass on everything.
[[nodiscard]] constexpr eviction_traits decorator_of(eviction_traits inner) noexcept {
  inner.hears_requests = inner.hears_routes = inner.hears_forecasts = true;
  return inner;
}
}  // namespace detail

/// The decorated policy, and the calls that a decorator hands on as they are.
template <eviction_policy P>
class eviction_decorator {
 public:
  void on_request(const prefetch_event& e) noexcept { tell_request(inner_, e); }
  void on_routed(const routing_view& view) noexcept { tell_routed(inner_, view); }
  void on_forecast(const visit_context& context, const forecast& expected) noexcept {
    tell_forecast(inner_, context, expected);
  }
  [[nodiscard]] const P& inner() const noexcept { return inner_; }

 protected:
  eviction_decorator(const pool_layout& layout, const typename P::config& options)
      : inner_(layout, options) {}

  P inner_;
};

}  // namespace hotset
