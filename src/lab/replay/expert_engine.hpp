// SPDX-License-Identifier: Apache-2.0
#pragma once
/// An engine that takes a visit's experts one after the other and protects none of them, as SpecMD's Algorithm 1 does.
///
/// Only to compare with it: what it computes with may be gone before the visit has ended, so no batched kernel could
/// run like this. Each distinct expert of a visit, in routed order, is looked up, fetched if it is missing, and used;
/// the next one may take its slot. Prefetches follow the last fetch. They are placed one at a time, when the copy before
/// has ended, so that a later one may evict an earlier one.

#include <memory>

#include "lab/replay/simulated_engine.hpp"

namespace hotset::lab {

/// The geometry of a pager that sees one expert at a time.
[[nodiscard]] inline geometry one_by_one(geometry shape) {
  shape.top_k = 1;
  shape.max_tokens_per_visit = 1;
  return shape;
}

/// Makes such an engine over a pager of the named policies. `shape`: of the views. Its counts are of single experts: a
/// visit is one expert's. The experts of a visit share its arithmetic evenly.
/// Errors: usage_error; also for a miss policy. Pre: the pools of `request` are of one_by_one(shape).
[[nodiscard]] std::unique_ptr<simulated_engine> make_expert_engine(
    const pager_request& request, const policy_knowledge& knowledge, const geometry& shape,
    const engine_clock& clock, const visit_costs& costs);

}  // namespace hotset::lab
