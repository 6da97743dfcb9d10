// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a pager counted. All 64-bit integers; ratios are computed at the edge.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace hotset::inline v0 {

struct access_counts {
  std::uint64_t accesses = 0;  ///< distinct experts of visits
  std::uint64_t hits = 0;      ///< of them, resident before their visit
  friend bool operator==(const access_counts&, const access_counts&) = default;
};

struct pager_stats {
  std::uint64_t visits = 0;
  std::uint64_t accesses = 0;
  std::uint64_t hits = 0;
  std::uint64_t prefetch_hits = 0;      ///< hits that were the first use of a speculative fill
  std::uint64_t misses = 0;             ///< accesses - hits
  std::uint64_t compulsory_misses = 0;  ///< first use of a key
  std::uint64_t collision_misses = 0;   ///< the key was evicted earlier in the same step
  std::uint64_t bypasses = 0;           ///< misses that were refused a slot
  std::uint64_t fills = 0;  ///< demand copies; fills + bypasses - misses = refills of split visits
  std::uint64_t speculative_fills = 0;
  std::uint64_t refused_prefetches = 0;  ///< requests for which the guard left no slot
  std::uint64_t evictions = 0;
  std::uint64_t bytes_filled = 0;  ///< demand and speculative
  std::uint64_t failed_fills = 0;
  std::uint64_t ignored_ids = 0;   ///< routed ids that named no expert
  std::uint64_t split_visits = 0;  ///< visits that needed more than one group
  std::uint64_t groups = 0;        ///< groups of split visits
  std::uint64_t steps = 0;
  std::uint64_t steps_with_miss = 0;
  std::array<access_counts, 3> by_kind{};  ///< by request_class
  std::vector<access_counts> per_layer{};

  [[nodiscard]] std::uint64_t miss_free_steps() const noexcept { return steps - steps_with_miss; }
  friend bool operator==(const pager_stats&, const pager_stats&) = default;
};

}  // namespace hotset::inline v0
