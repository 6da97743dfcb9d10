// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Requirements on a policy that says what becomes of a routed expert that no slot can serve.
///
/// | expression | meaning |
/// |---|---|
/// | `typename M::config` | aggregate of parameters with `validate()`, and `validate(shape)` where it needs something of a geometry |
/// | `M(shape, config)` | built for a model's geometry; all memory is taken here |
/// | `M::name` | the field's name of it, as in `--miss` |
/// | `M::traits` | a `miss_traits` |
/// | `prefetch_precision()` | the precision that speculative copies are made at |
/// | `decide(misses, view, residents, ids, out)` | writes one decision per miss; `ids` are the routed ids, which `substitute` overwrites in the places of its experts. A fetch names a precision < shape.precisions(), higher than the one that is held. The same arguments give the same answer until `observe`. |
/// | `observe(weights)` | gate weights of a visit that is being committed; empty if the engine has none |
///
/// `misses` come in order of first appearance. Every call is `noexcept`, allocates nothing, and reads no clock.

#include <concepts>
#include <span>
#include <string_view>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/policy/policy_config.hpp"

// clang-format 14 tears compound requirements apart.
// clang-format off
namespace hotset {

/// What is true of a miss policy's class.
struct miss_traits {
  bool is_exact = false;       ///< the model's output cannot change
  bool fetches_all = false;    ///< every miss is fetched at precision 0: `decide` is never called
  bool needs_logits = false;   ///< it cannot decide without the router's logits
  bool needs_weights = false;  ///< it cannot decide without the gate weights
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
