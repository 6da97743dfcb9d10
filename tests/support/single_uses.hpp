// SPDX-License-Identifier: Apache-2.0
#pragma once
// Notifies a policy of single uses, each as an event of its own.

#include <cstdint>
#include <span>
#include <vector>

#include "hotset/core/fill.hpp"
#include "hotset/core/visit_event.hpp"

namespace hotset::support {

/// Begins a visit without uses.
template <class P>
void begin_visit(P& policy, step_id step, layer_id layer) {
  const visit_context context{.layer = layer, .step = step};
  policy.on_visit({.context = context});
}

/// Calls tell(event) with an event of one use, which does not begin a visit.
template <class Tell>
void with_event(const expert_use& a, Tell tell) {
  const visit_context context{
      .layer = a.key.layer, .pool = a.pool, .step = a.step, .ordinal = a.ordinal, .kind = a.kind};
  std::vector<std::uint8_t> counted;
  if (a.repeated) counted.assign(index_of(a.key.expert) + 1, 1);
  tell(visit_event{
      .context = context, .counted = counted, .precision = a.precision, .begins = false});
}
/// A use of a resident key.
template <class P>
void hit(P& policy, const expert_use& a) {
  with_event(a, [&](visit_event e) {
    e.used = std::span(&a.slot, 1);
    e.experts = std::span(&a.key.expert, 1);
    e.weights = std::span(&a.weight, 1);
    policy.on_visit(e);
  });
}
/// A fill and a use of the key; only a fill if it is speculative.
template <class P>
void bring(P& policy, const expert_use& a, expert_key victim = no_key) {
  if (a.speculative)
    return policy.on_prefetch({.key = a.key,
                               .slot = a.slot,
                               .pool = a.pool,
                               .step = a.step,
                               .ordinal = a.ordinal,
                               .precision = a.precision});
  const fill copy{.key = a.key, .slot = a.slot, .victim = victim, .precision = a.precision};
  with_event(a, [&](visit_event e) {
    e.used = std::span(&a.slot, 1);
    e.fills = std::span(&copy, 1);
    e.experts = std::span(&a.key.expert, 1);
    e.weights = std::span(&a.weight, 1);
    policy.on_visit(e);
  });
}
/// A use of the key without a slot.
template <class P>
void bypass(P& policy, const expert_use& a) {
  const bypassed_use use{a.key.expert, a.weight};
  with_event(a, [&](visit_event e) {
    e.bypassed = std::span(&use, 1);
    policy.on_visit(e);
  });
}

}  // namespace hotset::support
