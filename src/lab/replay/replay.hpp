// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Runs the visits of a trace through a pager.

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

namespace hotset::lab {

/// When evictions happen.
enum class replay_mode : std::uint8_t {
  event_atomic,  ///< within the visit: what an engine does
  deferred,  ///< after the visit, until a byte budget holds; a visit may end above a budget it does not fit in
  per_access,  ///< each routed id is a visit of its own: only to compare with literature that does so
  expert_by_expert,  ///< a visit's experts one after the other, none protected: only to compare with SpecMD
};

/// As parse_replay_mode accepts it.
[[nodiscard]] std::string_view name_of(replay_mode mode) noexcept;
/// Errors: usage_error that lists the names.
[[nodiscard]] replay_mode parse_replay_mode(std::string_view name);

/// The visits of a trace numbered by events, and who uses what when.
struct event_order {
  std::vector<std::uint64_t> first{};  ///< by visit; empty: visit i is event i
  std::shared_ptr<const future_uses> future{};

  [[nodiscard]] std::uint64_t ordinal(std::size_t visit) const noexcept {
    return first.empty() ? visit : first[visit];
  }
};
/// `splits`: visits that do not fit are split. By expert, who is in which group depends on residency: all experts
/// of the visit then use its first event, and its groups' numbers are left free.
/// Complexity: O(routed ids), more for visits that do not fit. Memory: O(accesses).
[[nodiscard]] event_order order_events(const visit_sequence& visits, const pool_layout& layout,
                                       bool splits, visit_split how = visit_split::by_token);

/// Replays all visits, and logs every plan if there is a log. With `pool_bytes` (by pool), evicts after each visit until its pool
/// takes no more, sparing what the visit used.
/// Errors: infeasible_error naming the visit and what the pager said.
void replay(const visit_sequence& visits, const event_order& events, erased_pager& pager,
            decision_log* log = nullptr, std::span<const std::uint64_t> pool_bytes = {});
/// Replays all visits, none of which is split.
void replay(const visit_sequence& visits, belady_bypass& bound);

/// Errors: throws infeasible_error naming visit i and why.
[[noreturn]] void refuse_visit(const visit_sequence& visits, std::size_t i, status why);

}  // namespace hotset::lab
