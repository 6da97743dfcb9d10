// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Requirements on a policy that decides whether a missed expert may take a slot.
///
/// | expression | meaning |
/// |---|---|
/// | `typename A::config`, `A(layout, config)`, `A::name` | as for an eviction policy |
/// | `A::traits` | an `admission_traits` |
/// | `admit(context, misses, admitted)` | writes 1 or 0 for each miss of the visit; changes nothing |
/// | `on_use(a, hit, admitted)` | called for each distinct expert of a committed visit, in routed order |
/// | `on_evict(key, step)` | the key lost its slot in that step |
/// | `on_routed(view)` | only if the traits say so: the routing of a visit, before `admit` |
///
/// `on_routed` is called again if a visit is planned again. Only `on_use` confirms the visit.
/// In the context of `admit`, `free` is the number of misses that fit without a victim.
/// The engine serves a refused miss without a slot, from the host copy or a transient slot.

#include <concepts>
#include <cstdint>
#include <span>

#include "hotset/core/pool_layout.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/core/visit_event.hpp"
#include "hotset/policy/policy_config.hpp"

// clang-format 14 splits compound requirements badly.
// clang-format off
namespace hotset {

/// Traits of an admission policy's class.
struct admission_traits {
  /// `admit` always returns 1 for all misses, so the pager never calls it.
  bool admits_all = false;
  bool wants_routes = false;  ///< has `on_routed`
};

template <class A>
concept admission_policy =
    policy_for<A, pool_layout, admission_traits> &&
    requires(A policy, const A& const_policy, const visit_context& context,
             std::span<const expert_use> misses, std::span<std::uint8_t> admitted, const expert_use& a,
             expert_key key, step_id step, bool flag) {
      { const_policy.admit(context, misses, admitted) } noexcept;
      { policy.on_use(a, flag, flag) } noexcept;
      { policy.on_evict(key, step) } noexcept;
    } &&
    (A::traits.wants_routes ? requires(A policy, const routing_view& view) {
      { policy.on_routed(view) } noexcept -> std::same_as<void>;
    } : !requires { &A::on_routed; });

/// Calls `on_routed` if the policy has it.
template <class A>
void notify_admission_routed([[maybe_unused]] A& policy,
                           [[maybe_unused]] const routing_view& view) noexcept {
  if constexpr (A::traits.wants_routes) policy.on_routed(view);
}

}  // namespace hotset
