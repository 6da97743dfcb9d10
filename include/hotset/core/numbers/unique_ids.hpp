// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Reduces the routed ids of a visit to its distinct experts, without hashing or allocation.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"

namespace hotset {

/// Threads: compatible. Memory: 4 bytes for each expert, and 8 bytes for each of min(experts, most_ids), allocated
/// once.
class unique_ids {
 public:
  unique_ids() = default;
  unique_ids(std::size_t experts, std::size_t most_ids)
      : experts_(static_cast<std::uint32_t>(experts)),
        stamp_(experts, 0),
        last_(std::min(experts, most_ids), 0) {}

  /// Calls take(position, id) for each distinct id in 0..experts-1, in order of first appearance. Returns their
  /// number. Complexity: O(ids).
  template <class Take>
  std::uint32_t collect(id_view<expert_id> ids, Take take) noexcept {
    const auto base = base_ = next_base();
    ignored_ = 0;
    repeated_ = unknown_ = false;
    const auto experts = experts_;
    std::uint32_t* const stamp = stamp_.data();
    // Before the first repeated or invalid id, positions in both lists are equal.
    std::size_t i = 0;
    for (; i < ids.size(); ++i) {
      const auto id = static_cast<std::uint32_t>(ids[i]);
      if (id >= experts || stamp[id] >= base) break;  // stamps of earlier visits are below base
      stamp[id] = base + static_cast<std::uint32_t>(i);
      take(i, static_cast<expert_id>(id));
    }
    count_ = static_cast<std::uint32_t>(i);
    if (i < ids.size()) collect_rest(ids.subspan(i), take);
    return count_;
  }
  /// Writes the distinct ids and returns their number. Pre: `out` has room for min(experts, ids.size()).
  std::uint32_t collect(id_view<expert_id> ids, expert_id* out) noexcept {
    return collect(ids, [out](std::size_t at, expert_id id) { out[at] = id; });
  }
  /// Number of ids in the last collect that were outside 0..experts-1.
  [[nodiscard]] std::uint32_t ignored() const noexcept { return ignored_; }
  /// True if one of the ignored ids was not -1.
  [[nodiscard]] bool unknown() const noexcept { return unknown_; }
  /// True if the id is neither in 0..experts-1 nor -1.
  [[nodiscard]] bool is_unknown(expert_id id) const noexcept {
    return static_cast<std::uint32_t>(id) + 1U > experts_;
  }
  /// True if the last collect saw any id twice.
  [[nodiscard]] bool repeated() const noexcept { return repeated_; }
  /// Position of an id in the last collected list, or a number >= its length if it is absent.
  [[nodiscard]] std::uint32_t place_of(expert_id id) const noexcept {
    const auto e = static_cast<std::size_t>(static_cast<std::uint32_t>(id));
    if (e >= stamp_.size()) return std::numeric_limits<std::uint32_t>::max();
    return stamp_[e] - base_;
  }
  [[nodiscard]] bool contains(expert_id id) const noexcept { return place_of(id) < count_; }

  /// Writes the positions of the collected ids in order of last appearance. Pre: `ids` are those of the last collect.
  /// Complexity: O(ids).
  void last_appearance_order(id_view<expert_id> ids, std::uint32_t* out) noexcept {
    for (std::size_t i = 0; i < ids.size(); ++i)
      if (const auto at = place_of(ids[i]); at < count_) last_[at] = i;
    for (std::size_t i = 0; i < ids.size(); ++i)
      if (const auto at = place_of(ids[i]); at < count_ && last_[at] == i) *out++ = at;
  }

 private:
  std::uint32_t next_base() noexcept {
    if (next_ > std::numeric_limits<std::uint32_t>::max() - experts_) [[unlikely]] {
      std::fill(stamp_.begin(), stamp_.end(), 0U);
      next_ = 1;
    }
    const auto base = next_;
    next_ += experts_;
    return base;
  }
  template <class Take>
  void collect_rest(id_view<expert_id> ids, Take& take) noexcept {
    for (const expert_id id : ids) {
      const auto e = static_cast<std::size_t>(static_cast<std::uint32_t>(id));
      if (e >= stamp_.size()) {
        ++ignored_;
        unknown_ |= id != no_expert;
      } else if (stamp_[e] >= base_) {
        repeated_ = true;
      } else {
        stamp_[e] = base_ + count_;
        take(count_++, id);
      }
    }
  }

  std::uint32_t experts_ = 0;
  std::vector<std::uint32_t> stamp_;  ///< base of the visit + position in the collected list
  std::vector<std::size_t> last_;
  std::uint32_t next_ = 1;
  std::uint32_t base_ = 1;
  std::uint32_t count_ = 0;
  std::uint32_t ignored_ = 0;
  bool repeated_ = false;
  bool unknown_ = false;
};

}  // namespace hotset
