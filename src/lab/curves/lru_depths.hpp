// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The order of lru: of each depth, the key that was used longest ago goes deeper.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/trace/visit_sequence.hpp"
#include "lab/curves/size_ladder.hpp"

namespace hotset::lab {

/// All keys of a pool in one list, the last used in front; each size holds those up to a key that it knows, its last.
/// Cost: O(1) for each use and each key that goes deeper. Memory: 8 bytes per key.
class lru_depths {
 public:
  lru_depths(const visit_sequence&, const size_ladder& ladder)
      : sizes_(ladder.sizes()),
        links_(ladder.shape().keys() + ladder.pools()),
        lasts_(ladder.pools() * sizes_) {
    for (const auto pool : each<pool_id>(ladder.pools())) {
      const auto end = end_of(pool);
      links_[end] = {end, end};
      for (auto& last : lasts_of(pool)) last = end;
    }
  }

  void use(pool_id pool, std::uint32_t key, std::size_t depth) noexcept {
    const auto end = end_of(pool);
    const auto front = links_[end].next;
    if (front == key) return;
    const auto lasts = lasts_of(pool);
    if (front == end) std::fill(lasts.begin(), lasts.end(), key);
    if (depth < sizes_) take_out(key, lasts.subspan(depth));
    links_[key] = {end, front};
    links_[front].previous = links_[end].next = key;
  }
  void pass_on(pool_id pool, std::size_t depth, std::span<const std::uint32_t>,
               std::span<std::uint32_t> leaving) noexcept {
    auto& last = lasts_of(pool)[depth];
    for (auto& key : leaving) {
      key = last;
      last = links_[key].previous;
    }
    if (depth + 1 != sizes_) return;
    // What no size holds is in no list.
    links_[last].next = end_of(pool);
    links_[end_of(pool)].previous = last;
  }
  void end_visit(pool_id, std::size_t) noexcept {}

 private:
  struct link {
    std::uint32_t previous = 0, next = 0;
  };

  [[nodiscard]] std::uint32_t end_of(pool_id pool) const noexcept {
    return static_cast<std::uint32_t>(links_.size() - 1 - index_of(pool));
  }
  [[nodiscard]] std::span<std::uint32_t> lasts_of(pool_id pool) noexcept {
    return std::span(lasts_).subspan(index_of(pool) * sizes_, sizes_);
  }
  /// `lasts`: of the sizes that hold the key. Pre: it is not in front.
  void take_out(std::uint32_t key, std::span<std::uint32_t> lasts) noexcept {
    const auto [previous, next] = links_[key];
    links_[previous].next = next;
    links_[next].previous = previous;
    for (auto& last : lasts) {
      if (last != key) return;
      last = previous;
    }
  }

  std::size_t sizes_;
  std::vector<link> links_;           // [keys], then an end for each pool
  std::vector<std::uint32_t> lasts_;  // [pools][sizes]
};

}  // namespace hotset::lab
