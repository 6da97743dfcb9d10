// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Requirements on a policy that chooses experts to copy before they are routed.
///
/// | expression | meaning |
/// |---|---|
/// | `typename P::config` | aggregate of parameters with `validate()` |
/// | `P(shape, config)` | built for a model's geometry; allocates all memory |
/// | `P::name` | the policy's name in the field, used by `--prefetch` |
/// | `P::traits` | a `prefetch_traits` |
/// | `depth()` | number of layers ahead that it reads; the forecast must cover them |
/// | `most_requests()` | the most requests that one call of `propose` writes |
/// | `observe(view)` | a visit was routed; called once per visit, before `propose` |
/// | `propose(view, expected, out)` | writes requests for later visits; returns how many, at most `out.size()` |
///
/// `propose` sorts requests best first, with no key twice, resident or not. A smaller `out` cuts the list.
/// Every call is `noexcept`, allocates nothing, and reads no clock.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "hotset/core/error.hpp"
#include "hotset/core/forecast.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/policy/policy_config.hpp"

// clang-format 14 splits compound requirements badly.
// clang-format off
namespace hotset {

/// Traits of a prefetch policy's class.
struct prefetch_traits {
  bool asks_nothing = false;  ///< never makes a request
  /// The forecast member that it requires. `truth` is for studies only: it holds the next visit's routing.
  forecast_need needs = forecast_need::nothing;
};

template <class P>
concept prefetch_policy =
    policy_for<P, geometry, prefetch_traits> &&
    requires(P policy, const P fixed, const routing_view& view, const forecast& expected,
             std::span<prefetch_request> out) {
      { fixed.depth() } noexcept -> std::same_as<std::int32_t>;
      { fixed.most_requests() } noexcept -> std::same_as<std::size_t>;
      { policy.observe(view) } noexcept;
      { policy.propose(view, expected, out) } noexcept -> std::same_as<std::size_t>;
    };

}  // namespace hotset
