// SPDX-License-Identifier: Apache-2.0
#pragma once
/// An engine that handles a visit's experts one by one and protects none, like Algorithm 1 of SpecMD.
///
/// For comparison with SpecMD only: experts may be evicted before the visit has ended, so no batched kernel could run
/// like this. Each distinct expert of a visit, in routed order, is looked up, fetched if missing, and used; the next
/// one may take its slot. Prefetches follow the last fetch. They are placed one at a time, when the previous copy has
/// ended, so a later prefetch may evict an earlier one.

#include <memory>

#include "lab/replay/simulated_engine.hpp"

namespace hotset::lab {

/// Geometry of a pager that sees one expert at a time.
[[nodiscard]] inline geometry one_by_one(geometry shape) {
  shape.top_k = 1;
  shape.max_tokens_per_visit = 1;
  return shape;
}

/// Makes such an engine over a pager of the named policies. `shape`: geometry of the views. Its counters count single
/// experts: a visit is one expert's. The experts of a visit share its arithmetic evenly.
/// Errors: usage_error; also for a miss policy. Pre: the pools of `request` are those of one_by_one(shape).
[[nodiscard]] std::unique_ptr<simulated_engine> make_expert_engine(
    const pager_request& request, const policy_knowledge& knowledge, const geometry& shape,
    const engine_clock& clock, const visit_costs& costs);

}  // namespace hotset::lab
