// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Counts what replays of one policy with caches of several sizes would count, in one walk over the visits.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "hotset/core/pool_layout.hpp"
#include "hotset/paging/pager_stats.hpp"
#include "hotset/trace/visit_sequence.hpp"

namespace hotset::lab {

/// True of an eviction policy, as the command line takes it, whose sizes can be counted together.
[[nodiscard]] bool counts_together(std::string_view eviction);

/// True if a cache of that size can be one of them: it splits no visit, and the policy would work in it.
/// Pre: counts_together(eviction).
[[nodiscard]] bool counts_together(std::string_view eviction, const visit_sequence& visits,
                                   const pool_layout& layout);

/// True if each of its sizes has a pager, and what they share is most of the work: cutting sizes into parts is worth a worker.
[[nodiscard]] bool has_pagers(std::string_view eviction);

/// What a replay of one size comes to.
struct size_count {
  pager_stats stats{};
  std::uint64_t decision_hash = 0;  ///< 0 where no pager decided
};

/// By size. Equal to what pagers that admit and fetch every miss count. A policy that orders by next_use_values has a pager for each
/// size, which are told what experts are worth; of others all is counted without one.
/// Errors: infeasible_error. Pre: as above of the policy and of each layout; they are those of one size_ladder.
[[nodiscard]] std::vector<size_count> count_together(std::string_view eviction,
                                                     const visit_sequence& visits,
                                                     std::span<const pool_layout* const> layouts);

}  // namespace hotset::lab
