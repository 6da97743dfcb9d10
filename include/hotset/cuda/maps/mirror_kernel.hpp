// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Device-side mirror: turns routed ids into slots and lists absent experts without leaving the device. Its rule, its
/// host form and its launch.
///
/// Rule: an id outside 0..experts-1 is ignored and counted, and its slot is -1. Any other id gets the row's slot, -1
///   if absent. Absent experts are listed once each, in order of first appearance.
/// Host and device give the same bytes; the kernel consists of the steps below.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/numbers/unique_ids.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/core/platform/compiler.hpp"
#include "hotset/cuda/error.hpp"
#include "hotset/cuda/runtime.hpp"

namespace hotset::cuda {

/// Counts of one visit. A kernel writes the whole struct.
struct mirror_counts {
  std::uint32_t missing = 0;  ///< length of the list of absent experts
  std::uint32_t ignored = 0;  ///< ids out of range
  friend constexpr bool operator==(const mirror_counts&, const mirror_counts&) = default;
};

/// Reference form. Shape: ids and slots [tokens * top_k], row [experts], missing [min(ids, experts)] or more.
/// Pre: `unique` was made for `row.size()` experts. Complexity: O(ids).
inline mirror_counts mirror_on_host(unique_ids& unique, id_view<expert_id> ids,
                                    std::span<const slot_id> row, std::span<slot_id> slots,
                                    std::span<expert_id> missing) noexcept {
  HOTSET_ASSERT(slots.size() == ids.size());
  mirror_counts count;
  (void)unique.collect(ids, [&](std::size_t /*at*/, expert_id id) {
    if (row[index_of(id)] < 0) missing[count.missing++] = id;
  });
  count.ignored = unique.ignored();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto id = static_cast<std::size_t>(static_cast<std::uint32_t>(ids[i]));
    slots[i] = id < row.size() && row[id] >= 0 ? row[id] : no_slot;
  }
  return count;
}

/// Steps of the threads of one block, each for one id. All threads synchronise between two steps.
///
///   first[e] = nowhere                                          for every expert e
///   found = look_up(ids[i]); slots[i] = found.slot;             for every place i
///     if (found.is_missing) first[ids[i]] = min(first[ids[i]], i)
///   in rounds of one id per thread: a thread whose is_first(i) holds writes its id
///     after the ids of earlier rounds, warps and lanes
namespace mirror_step {

/// Position of a thread that has nothing to write.
inline constexpr std::uint32_t nowhere = 0xffffffffU;
/// Threads of a warp.
inline constexpr std::uint32_t warp_size = 32;

/// Result of a lookup.
struct found {
  slot_id slot = no_slot;
  bool is_missing = false;  ///< an expert without a slot
  bool is_ignored = false;  ///< not an expert
};
/// Looks a routed id up in the row.
[[nodiscard]] HOTSET_HOST_DEVICE constexpr found look_up(expert_id id, const slot_id* row,
                                                         std::uint32_t experts) noexcept {
  if (static_cast<std::uint32_t>(id) >= experts) return {no_slot, false, true};
  const slot_id slot = row[index_of(id)];
  return number(slot) < 0 ? found{no_slot, true, false} : found{slot, false, false};
}

/// Returns true if an absent expert appears first at place `i`. Only absent experts have a `first`.
[[nodiscard]] HOTSET_HOST_DEVICE constexpr bool is_first(const expert_id* ids, std::uint32_t count,
                                                         std::uint32_t i,
                                                         const std::uint32_t* first,
                                                         std::uint32_t experts) noexcept {
  if (i >= count) return false;
  const auto id = static_cast<std::uint32_t>(ids[i]);
  return id < experts && first[id] == i;
}

/// Counts of the warps before one, and of all warps.
struct sums {
  std::uint32_t before = 0;  ///< sum over the earlier warps
  std::uint32_t all = 0;
};
/// Adds up the counts of the warps. Shape: of_warp [warps].
[[nodiscard]] HOTSET_HOST_DEVICE constexpr sums sum_warps(const std::uint32_t* of_warp,
                                                          std::uint32_t warps,
                                                          std::uint32_t warp) noexcept {
  sums s;
  for (std::uint32_t w = 0; w < warps; ++w) {
    if (w == warp) s.before = s.all;
    s.all += of_warp[w];
  }
  return s;
}
/// Mask of the warp's lanes before `lane`.
[[nodiscard]] HOTSET_HOST_DEVICE constexpr std::uint32_t lanes_before(std::uint32_t lane) noexcept {
  return (1U << lane) - 1U;
}

}  // namespace mirror_step

/// Most experts of a layer: the block's shared memory stays within 32 KiB, which every device has.
inline constexpr std::int32_t mirror_most_experts = 8192;
/// Most ids of a visit, tokens * top_k. One block does all the work, so visits are slow long before this limit.
inline constexpr std::int64_t mirror_most_ids = std::int64_t{1} << 28;

/// All pointers are device addresses: device memory, or page-locked host memory that the device can address.
struct mirror_arguments {
  const expert_id* ids = nullptr;  ///< [count]
  std::int64_t count = 0;          ///< tokens * top_k
  const slot_id* row = nullptr;    ///< [experts], -1 = absent
  std::int32_t experts = 0;
  slot_id* slots = nullptr;  ///< [count]
  /// [min(count, experts)]; entries after the list are not written.
  expert_id* missing = nullptr;
  mirror_counts* counts = nullptr;  ///< [1]
};

/// Returns invalid_value for shapes out of range, missing or misaligned arrays, and results that overlap another
/// array.
[[nodiscard]] inline error_code check(const mirror_arguments& a) noexcept {
  if (a.count < 0 || a.count > mirror_most_ids || a.experts < 1 || a.experts > mirror_most_experts)
    return error_code::invalid_value;
  const std::array<device_range, 5> arrays = {
      {{a.ids, a.count},
       {a.row, a.experts},
       {a.slots, a.count},
       {a.missing, std::min<std::int64_t>(a.count, a.experts)},
       {a.counts, 1}}};
  return device_range::are_usable(arrays, 2) ? error_code::success : error_code::invalid_value;
}

/// Threads of the block: one for each id and expert, in whole warps, up to the largest block.
[[nodiscard]] constexpr std::uint32_t mirror_threads(std::int64_t count,
                                                     std::int32_t experts) noexcept {
  constexpr std::int64_t warp = mirror_step::warp_size;
  const auto wanted = std::max<std::int64_t>({count, experts, 1});
  return static_cast<std::uint32_t>(
      std::min<std::int64_t>((wanted + warp - 1) / warp * warp, 1024));
}

/// Enqueues the mirror of one visit: one kernel of one block, without allocation. It may be captured into a graph:
/// pointers and shape are frozen, contents are read at each replay.
/// Errors: those of check(), with nothing launched; those of the launch.
error_code launch_mirror(const mirror_arguments& arguments, stream_handle stream) noexcept;

}  // namespace hotset::cuda
