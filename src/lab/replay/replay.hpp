// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Replays the visits of a trace through a pager.

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "hotset/core/pool_layout.hpp"
#include "hotset/core/status.hpp"
#include "hotset/registry/policy_registry.hpp"
#include "hotset/trace/future_uses.hpp"
#include "hotset/trace/visit_sequence.hpp"
#include "lab/replay/belady_bypass.hpp"
#include "lab/replay/decision_log.hpp"
#include "lab/replay/part_counts.hpp"

namespace hotset::lab {

/// Time of evictions.
enum class replay_mode : std::uint8_t {
  event_atomic,  ///< within the visit, as in an engine
  /// After the visit, until a byte budget holds; a visit larger than its budget may exceed it.
  deferred,
  /// Each routed id is its own visit; only for comparison with literature that replays so.
  per_access,
  /// A visit's experts one by one, none protected; only for comparison with SpecMD.
  expert_by_expert,
};

/// The name that parse_replay_mode accepts.
[[nodiscard]] std::string_view name_of(replay_mode mode) noexcept;
/// Errors: usage_error that lists the names.
[[nodiscard]] replay_mode parse_replay_mode(std::string_view name);

/// Visits of a trace numbered by events, and the uses of each event.
struct event_order {
  std::vector<std::uint64_t> first{};  ///< by visit; empty: visit i is event i
  std::shared_ptr<const future_uses> future{};

  [[nodiscard]] std::uint64_t ordinal(std::size_t visit) const noexcept {
    return first.empty() ? visit : first[visit];
  }
};
/// `splits`: visits that do not fit are split. In a split by experts, residency decides the groups: all experts of
/// the visit then use its first event, and the groups' numbers stay unused.
/// Complexity: O(routed ids), more for visits that do not fit. Memory: O(accesses).
[[nodiscard]] event_order order_events(const visit_sequence& visits, const pool_layout& layout,
                                       bool splits, visit_split how = visit_split::by_token);

/// Replays all visits. Logs every plan if there is a log, and counts parts if `parts` is given. With `pool_bytes` (by
/// pool), evicts after each visit until its pool fits the budget, sparing the experts of the visit.
/// Errors: infeasible_error naming the visit and the pager's status.
void replay(const visit_sequence& visits, const event_order& events, erased_pager& pager,
            decision_log* log = nullptr, std::span<const std::uint64_t> pool_bytes = {},
            part_counts* parts = nullptr);
/// Replays all visits; none is split.
void replay(const visit_sequence& visits, belady_bypass& bound, part_counts* parts = nullptr);

/// Errors: throws infeasible_error naming visit i and the reason.
[[noreturn]] void refuse_visit(const visit_sequence& visits, std::size_t i, status why);

}  // namespace hotset::lab
