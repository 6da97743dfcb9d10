// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What the slots of small pools are ordered by, kept for each slot, and the order found by looking at all of a pool.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/core/platform/compiler.hpp"
#include "hotset/core/slot_mask.hpp"
#include "hotset/eviction/order/lowest_ranked.hpp"
#include "hotset/eviction/order/pool_members.hpp"

namespace hotset {

/// Order: score, of equals the least position first. No allocation after construction. Threads: compatible. Memory: 16 bytes a slot.
class slot_scores {
 public:
  /// A slot's score while it holds nothing: it is never chosen.
  static constexpr double vacant = std::numeric_limits<double>::infinity();

  /// Nothing is held at first.
  explicit slot_scores(std::size_t slots)
      : scores_(slots + padding, vacant), positions_(slots + padding, 0) {}

  [[nodiscard]] double& score(slot_id slot) noexcept { return scores_[slot]; }
  [[nodiscard]] std::uint64_t& position(slot_id slot) noexcept { return positions_[slot]; }
  [[nodiscard]] std::uint64_t position(slot_id slot) const noexcept { return positions_[slot]; }

  /// The eligible slots of a pool that hold something, in order; returns how many. Pre: rank_rows::most slots at most.
  /// Complexity: O(pool's slots), vectorised, and O(out) for each that is about as low as the last one chosen.
  std::size_t select(const pool_members& members, pool_id pool, const slot_mask& eligible,
                     std::span<slot_id> out) noexcept {
    const auto size = members.size(pool);
    HOTSET_ASSERT(size <= rank_rows::most);
    std::array<std::uint64_t, rank_rows::most / 64> among;
    const auto words = std::span(among).first(words_for(size));
    std::array<std::uint32_t, rank_rows::most> places;
    const auto room = std::span(places).first(std::min(out.size(), size));
    const auto take = [&](rank_rows rows, auto slot_at) {
      const auto count = lowest_ranked(rows, words, room, level_);
      for (std::size_t n = 0; n < count; ++n) out[n] = slot_at(places[n]);
      return count;
    };
    if (!members.as_built(pool)) {
      const auto slots = members.of(pool);
      return take(gather(slots, eligible, words), [slots](std::uint32_t n) { return slots[n]; });
    }
    const auto first = index_of(members.first_slot(pool));
    eligible.copy(members.first_slot(pool), size, among.data());
    return take({scores_.data() + first, positions_.data() + first},
                [first](std::uint32_t n) { return static_cast<slot_id>(first + n); });
  }

 private:
  static constexpr std::size_t padding = 63;  // rows are looked at in whole words

  /// A pool that slots have left or come to: side by side for once.
  [[gnu::noinline]] rank_rows gather(std::span<const slot_id> slots, const slot_mask& eligible,
                                     std::span<std::uint64_t> among) noexcept {
    std::ranges::fill(among, std::uint64_t{0});
    for (std::size_t n = 0; n < slots.size(); ++n) {
      gathered_scores_[n] = scores_[slots[n]];
      gathered_positions_[n] = positions_[slots[n]];
      among[n / 64] |= std::uint64_t{eligible.test(slots[n]) ? 1U : 0U} << n % 64;
    }
    return {gathered_scores_.data(), gathered_positions_.data()};
  }

  vector_level level_ = best_vector_level();
  per_slot<double> scores_;
  per_slot<std::uint64_t> positions_;
  std::array<double, rank_rows::most> gathered_scores_{};
  std::array<std::uint64_t, rank_rows::most> gathered_positions_{};
};

}  // namespace hotset
