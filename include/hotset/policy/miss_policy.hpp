// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Requirements on a policy that decides how to serve a routed expert that no slot can serve.
///
/// | expression | meaning |
/// |---|---|
/// | `typename M::config` | aggregate of parameters with `validate()` |
/// | `M(shape, config)` | built for a model's geometry; allocates all memory |
/// | `M::name` | the policy's name in the field, used by `--miss` |
/// | `M::traits` | a `miss_traits` |
/// | `prefetch_precision()` | the precision of speculative copies |
/// | `decide(misses, view, residents, ids, out)` | writes one decision for each miss. See below |
/// | `observe(weights)` | gate weights of a visit at its commit; empty if the engine has none |
///
/// A config also has `validate(shape)` if it depends on a geometry.
///
/// In `decide`, `ids` are the routed ids. `substitute` overwrites the places of its experts in them.
/// A fetch names a precision < shape.precisions() that is higher than the held one.
/// Equal arguments give equal answers until the next `observe`.
/// `misses` are in order of first appearance. Every call is `noexcept`, allocates nothing, and reads no clock.

#include <concepts>
#include <span>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/policy/policy_config.hpp"

// clang-format 14 splits compound requirements badly.
// clang-format off
namespace hotset {

/// Traits of a miss policy's class.
struct miss_traits {
  bool is_exact = false;       ///< the model's output cannot change
  bool fetches_all = false;  ///< every miss is fetched at precision 0, so `decide` is never called
  bool needs_logits = false;  ///< cannot decide without the router's logits
  bool needs_weights = false;  ///< cannot decide without the gate weights
};

template <class M>
concept miss_policy =
    policy_for<M, geometry, miss_traits> &&
    requires(M policy, std::span<const miss> misses, const routing_view& view,
             const residency_view& residents, std::span<expert_id> ids,
             std::span<miss_decision> out, std::span<const float> weights) {
      { policy.decide(misses, view, residents, ids, out) } noexcept;
      { policy.observe(weights) } noexcept;
      { policy.prefetch_precision() } noexcept -> std::same_as<precision_id>;
    };

}  // namespace hotset
