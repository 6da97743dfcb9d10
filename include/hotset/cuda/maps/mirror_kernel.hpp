// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The device-side mirror: routed ids that never leave the device become slots and a list of absent experts there.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "hotset/core/ids.hpp"
#include "hotset/cuda/error.hpp"
#include "hotset/cuda/maps/kernel_arguments.hpp"
#include "hotset/cuda/maps/mirror.hpp"
#include "hotset/cuda/runtime.hpp"

namespace hotset::cuda {

/// Of one layer. Bounds the block's shared memory at 32 KiB, which every device has.
inline constexpr std::int32_t mirror_most_experts = 8192;
/// Of one visit, tokens * top_k. One block does it all, so a long visit is slow well before this.
inline constexpr std::int64_t mirror_most_ids = std::int64_t{1} << 28;

/// All pointers are the device's: device memory, or page-locked host memory that it can address.
struct mirror_arguments {
  const expert_id* ids = nullptr;  ///< [count]
  std::int64_t count = 0;          ///< tokens * top_k
  const slot_id* row = nullptr;    ///< [experts], -1 = absent
  std::int32_t experts = 0;
  slot_id* slots = nullptr;  ///< [count]
  /// [min(count, experts)]; what lies behind the list is not written.
  expert_id* missing = nullptr;
  mirror_counts* counts = nullptr;  ///< [1]
};

/// Returns invalid_value for shapes out of range, absent or misaligned arrays, and results that overlap anything.
[[nodiscard]] inline error_code check(const mirror_arguments& a) noexcept {
  if (a.count < 0 || a.count > mirror_most_ids || a.experts < 1 || a.experts > mirror_most_experts)
    return error_code::invalid_value;
  const std::array<device_range, 5> arrays = {
      {{a.ids, a.count},
       {a.row, a.experts},
       {a.slots, a.count},
       {a.missing, std::min<std::int64_t>(a.count, a.experts)},
       {a.counts, 1}}};
  constexpr std::size_t first_result = 2;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    if (!arrays[i].is_usable()) return error_code::invalid_value;
    for (auto j = std::max(i + 1, first_result); j < arrays.size(); ++j)
      if (arrays[i].overlaps(arrays[j])) return error_code::invalid_value;
  }
  return error_code::success;
}

/// Threads of the one block: a multiple of a warp that has one for each id and expert, as far as a block goes.
[[nodiscard]] constexpr std::uint32_t mirror_threads(std::int64_t count,
                                                     std::int32_t experts) noexcept {
  constexpr std::int64_t warp = mirror_step::warp_size;
  const auto wanted = std::max<std::int64_t>({count, experts, 1});
  return static_cast<std::uint32_t>(
      std::min<std::int64_t>((wanted + warp - 1) / warp * warp, 1024));
}

/// Enqueues the mirror of one visit: one kernel of one block, no allocation; may be captured into a graph, where the
/// pointers and the shape are frozen and the contents are read anew at each replay.
/// Errors: those of check(), with nothing launched; what the runtime said of the launch.
error_code launch_mirror(const mirror_arguments& arguments, stream_handle stream) noexcept;

}  // namespace hotset::cuda
