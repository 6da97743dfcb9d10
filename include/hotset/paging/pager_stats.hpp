// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Counters of a pager. All are 64-bit integers; readers compute ratios.

#include <array>
#include <cstdint>
#include <vector>

#include "hotset/version.hpp"

namespace hotset {

/// Uses of one layer, or of one request class.
struct access_counts {
  std::uint64_t accesses = 0;    ///< distinct experts of visits
  std::uint64_t hits = 0;        ///< accesses to experts resident before their visit
  std::uint64_t collisions = 0;  ///< collision misses; counted by layer only
  friend bool operator==(const access_counts&, const access_counts&) = default;
};

/// Uses and copies of one layer.
struct layer_counts : access_counts {
  std::uint64_t compulsory = 0;    ///< compulsory misses
  std::uint64_t bytes_filled = 0;  ///< as pager_stats::bytes_filled
  friend bool operator==(const layer_counts&, const layer_counts&) = default;
};

/// Counts since the pager was created.
struct pager_stats {
  std::uint64_t visits = 0;
  std::uint64_t accesses = 0;
  std::uint64_t hits = 0;
  std::uint64_t prefetch_hits = 0;  ///< hits that were the first use of a speculative copy
  /// accesses - hits. Each miss has one cause: compulsory, collision, precision or capacity (the rest). Each miss is
  /// served in one way: filled, bypassed, dropped or substituted.
  std::uint64_t misses = 0;
  std::uint64_t compulsory_misses = 0;  ///< first use of a key that is not a collision
  /// The key was evicted earlier in the same step, or before the use for which it was prefetched.
  std::uint64_t collision_misses = 0;
  std::uint64_t precision_misses = 0;  ///< resident, but below the precision that the use requested
  std::uint64_t bypasses = 0;          ///< misses that admission refused a slot
  std::uint64_t dropped_misses = 0;    ///< misses that a policy dropped
  std::uint64_t substituted_misses = 0;  ///< misses that a policy replaced by other experts
  /// Demand copies: one for each filled miss, and repeated copies of split visits.
  std::uint64_t fills = 0;
  std::uint64_t speculative_fills = 0;
  std::uint64_t late_prefetches = 0;       ///< prefetch hits whose copy had not arrived
  std::uint64_t wasted_prefetches = 0;     ///< speculative copies that lost their slot before a use
  std::uint64_t cancelled_prefetches = 0;  ///< cancelled before any byte moved
  std::uint64_t refused_prefetches = 0;    ///< requests for which the guard left no slot
  std::uint64_t evictions = 0;
  std::uint64_t pre_evictions = 0;  ///< evictions ahead of a visit
  /// Demand, prefetched and warm bytes, without copies that were cancelled before any byte moved.
  std::uint64_t bytes_filled = 0;
  std::uint64_t bytes_demand = 0;
  /// Demand bytes of keys evicted too early: collision misses of visits that were not split.
  std::uint64_t bytes_refetched = 0;
  std::uint64_t bytes_warm = 0;  ///< bytes of plan_warm
  /// Bytes of speculative copies: used, wasted, cancelled, or still pending.
  std::uint64_t bytes_prefetched = 0;
  std::uint64_t bytes_prefetch_used = 0;
  std::uint64_t bytes_prefetch_wasted = 0;
  std::uint64_t bytes_prefetch_cancelled = 0;
  std::uint64_t failed_fills = 0;
  std::uint64_t ignored_ids = 0;   ///< routed ids that match no expert
  std::uint64_t split_visits = 0;  ///< visits that needed more than one group
  std::uint64_t groups = 0;        ///< groups of split visits
  std::uint64_t steps = 0;
  std::uint64_t steps_with_miss = 0;
  std::array<access_counts, 3> by_kind{};  ///< by request_class
  std::vector<layer_counts> per_layer{};

  /// Speculative bytes that are outstanding or not used yet.
  [[nodiscard]] std::uint64_t bytes_prefetch_pending() const noexcept {
    return bytes_prefetched - bytes_prefetch_used - bytes_prefetch_wasted -
           bytes_prefetch_cancelled;
  }
  [[nodiscard]] std::uint64_t reuse_hits() const noexcept { return hits - prefetch_hits; }
  /// Misses of keys that were used before and lost their slot in an earlier step.
  [[nodiscard]] std::uint64_t capacity_misses() const noexcept {
    return misses - compulsory_misses - collision_misses - precision_misses;
  }
  [[nodiscard]] std::uint64_t miss_free_steps() const noexcept { return steps - steps_with_miss; }
  friend bool operator==(const pager_stats&, const pager_stats&) = default;
};

}  // namespace hotset
