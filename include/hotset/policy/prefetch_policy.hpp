// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Requirements on a policy that says which experts to bring before they are routed.
///
/// | expression | meaning |
/// |---|---|
/// | `typename P::config` | aggregate of parameters with `validate()` |
/// | `P(shape, config)` | built for a model's geometry; all memory is taken here |
/// | `P::name` | the field's name of it, as in `--prefetch` |
/// | `P::traits` | a `prefetch_traits` |
/// | `depth()` | layers ahead that it looks; the forecast must reach as far |
/// | `most_requests()` | the most that one call of `propose` writes |
/// | `observe(view)` | a visit was routed; called once per visit, before `propose` |
/// | `propose(view, expected, out)` | writes requests for later visits, best first, no key twice, resident or not; returns how many, at most `out.size()`. The first n are the same whatever `out.size()` is. |
///
/// Every call is `noexcept`, allocates nothing, and reads no clock.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "hotset/core/error.hpp"
#include "hotset/core/forecast.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/policy/policy_config.hpp"

// clang-format 14 tears compound requirements apart.
// clang-format off
namespace hotset {

/// What is true of a prefetch policy's class.
struct prefetch_traits {
  bool asks_nothing = false;  ///< it never asks for anything
  /// What of the forecast it cannot do without. The truth is for studies alone: it is what is still to be routed.
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
