// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Requirements on a policy that says which slot to give up.
///
/// | expression | meaning |
/// |---|---|
/// | `typename P::config` | aggregate of parameters with `validate()` |
/// | `P(layout, config)` | built for the slots and pools of a `pool_layout`; all memory is taken here |
/// | `P::name` | the field's name of it, as in `--eviction` |
/// | `on_step(step, layer)` | a visit is being committed; called once per visit, before its accesses |
/// | `on_hit(a)` | `a.key` was resident and is used |
/// | `on_fill(a)` | `a.key` now lives in `a.slot`; used unless `a.speculative` |
/// | `on_bypass(a)` | `a.key` is used without a slot |
/// | `on_evict(slot, key)` | the slot no longer holds the key |
/// | `select_victims(context, eligible, out)` | writes up to `out.size()` distinct eligible slots of `context.pool` in the order of eviction; returns how many. Fewer only when no more are eligible. Asking for n gives the first n of asking for more; the order of two slots does not depend on what else is eligible; asking twice gives the same answer. It may repair its own index. |
///
/// Optional: `on_request(a)`: a prefetcher asked for a key that is resident already, for step `a.step`.
/// Optional: `on_visit(context, slots)`: in place of `on_hit` for each hit, after `on_fill` of each fill, with the distinct slots
/// of both in the order of use; for policies whose order after a visit depends on these slots alone.
/// Optional: `static constexpr bool needs_weights = true`: fill `access::weight` and `access::rank`.
/// Optional: `takes_visits()`, `wants_weights()`: what a policy that is chosen at run time really needs of the two above.
/// Every call is `noexcept`, allocates nothing, and reads no clock.

#include <concepts>
#include <cstddef>
#include <span>
#include <string_view>

#include "hotset/core/access.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/slot_mask.hpp"

namespace hotset::inline v0 {

template <class P>
concept eviction_policy =
    std::move_constructible<P> &&
    std::constructible_from<P, const pool_layout&, const typename P::config&> &&
    requires(P policy, const access& a, const visit_context& context, const slot_mask& eligible,
             std::span<slot_id> out, step_id step, layer_id layer, slot_id slot, expert_key key,
             const typename P::config& config) {
      { P::name } -> std::convertible_to<std::string_view>;
      { config.validate() } -> std::same_as<validation>;
      { policy.on_step(step, layer) } noexcept;
      { policy.on_hit(a) } noexcept;
      { policy.on_fill(a) } noexcept;
      { policy.on_bypass(a) } noexcept;
      { policy.on_evict(slot, key) } noexcept;
      { policy.select_victims(context, eligible, out) } noexcept -> std::same_as<std::size_t>;
    };

namespace detail {
template <class P>
consteval bool needs_weights() {
  if constexpr (requires { P::needs_weights; }) return P::needs_weights;
  return false;
}
template <class P>
[[nodiscard]] bool wants_weights(const P& policy) noexcept {
  if constexpr (requires { policy.wants_weights(); }) return policy.wants_weights();
  return needs_weights<P>();
}
template <class P>
concept told_of_visits = requires(P& policy, const visit_context& context,
                                  std::span<const slot_id> slots) {
  policy.on_visit(context, slots);
};
template <class P>
[[nodiscard]] bool takes_visits(const P& policy) noexcept {
  if constexpr (requires { policy.takes_visits(); }) return policy.takes_visits();
  return told_of_visits<P>;
}
}  // namespace detail

}  // namespace hotset::inline v0
