// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Closed form of the split for a live engine: KV keeps its peak use plus headroom, experts get the rest.
///
/// Rule: N* = max(N_min, ceil((1 + headroom) peak)); C* = clamp(floor((M - N* m_KV) / m_E), C_min, E); then N* =
///   floor((M - C* m_E) / m_KV) takes what the clamp left. Call it at a drained barrier. A change of the cap inside
///   the dead zone is skipped, unless the KV pool is short of N*.
/// Source: WiSP 3.5, Appendix D, eq. 8-10: a live engine's KV miss curve is a step.
/// Deviations: budgets in which C_min would push N* below N_min are refused at construction. headroom is a whole
///   percent, so that the ceiling is exact. If the budget cannot give N*, bytes too few for a block go to experts.
///   With `count_reuse`, the peak counts the blocks in use plus the blocks that the burst read again: blocks in use
///   alone do not show what cached prefixes are worth.
/// Cost: O(1).

#include <algorithm>
#include <cstdint>
#include <limits>

#include "hotset/core/error.hpp"
#include "hotset/planning/budget/split_limits.hpp"

namespace hotset {

/// Immutable. Threads: const use is safe.
class dual_resize {
 public:
  struct config {
    split_limits limits{};  ///< with the budget as measured at the barrier
    std::uint64_t headroom_percent = 10;
    std::uint64_t dead_zone = 1;  ///< slots; a change of the cap by at most this is skipped
    bool count_reuse = false;     ///< blocks that were read again count too

    [[nodiscard]] validation validate() const {
      if (limits.block_bytes == 0) return error{"dual_resize block_bytes = 0, accepted: 1 or more"};
      if (headroom_percent > 1000)
        return refusal("dual_resize headroom_percent = ", headroom_percent, ", accepted: 0..1000");
      return limits.validate();
    }
  };

  static result<dual_resize> create(const config& options) {
    if (auto bad = options.validate()) return *std::move(bad);
    return dual_resize(options);
  }

  /// Result of eq. 8-10 for the most blocks in use at one time, and the distinct blocks that the burst read again
  /// (ignored without `count_reuse`). Never exceeds the budget.
  [[nodiscard]] pool_sizes target(std::uint64_t peak_blocks,
                                  std::uint64_t reused_blocks = 0) const noexcept {
    const auto& o = options_.limits;
    const auto most_blocks = (o.budget_bytes - o.min_cap * o.slot_bytes) / o.block_bytes;
    const auto blocks = std::min(most_blocks, wanted_blocks(peak_blocks, reused_blocks));
    const auto cap =
        std::clamp((o.budget_bytes - blocks * o.block_bytes) / o.slot_bytes, o.min_cap, o.max_cap);
    return {cap, (o.budget_bytes - cap * o.slot_bytes) / o.block_bytes};
  }
  /// Returns the sizes to change to from `now`, or `now` itself if the change is not worth a resize.
  [[nodiscard]] pool_sizes next(const pool_sizes& now, std::uint64_t peak_blocks,
                                std::uint64_t reused_blocks = 0) const noexcept {
    const auto to = target(peak_blocks, reused_blocks);
    const auto apart = to.cap > now.cap ? to.cap - now.cap : now.cap - to.cap;
    const bool short_of_blocks =
        now.blocks < to.blocks && now.blocks < wanted_blocks(peak_blocks, reused_blocks);
    return apart <= options_.dead_zone && !short_of_blocks ? now : to;
  }
  /// Returns true if it uses the number of blocks that the burst read again.
  [[nodiscard]] bool counts_reuse() const noexcept { return options_.count_reuse; }

 private:
  explicit dual_resize(const config& options) : options_(options) {}

  /// Blocks wanted by eq. 8.
  [[nodiscard]] std::uint64_t wanted_blocks(std::uint64_t peak,
                                            std::uint64_t reused) const noexcept {
    if (options_.count_reuse)
      peak += std::min(reused, std::numeric_limits<std::uint64_t>::max() - peak);
    return std::max(options_.limits.min_blocks, with_headroom(peak));
  }

  /// ceil(peak (100 + percent) / 100), or the largest number.
  [[nodiscard]] std::uint64_t with_headroom(std::uint64_t peak) const noexcept {
    constexpr auto most = std::numeric_limits<std::uint64_t>::max();
    const auto percent = 100 + options_.headroom_percent;
    if (peak > (most - 99) / percent) return most;
    return (peak * percent + 99) / 100;
  }

  config options_;
};

}  // namespace hotset
