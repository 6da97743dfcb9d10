// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Cache sizes that are counted together: the same layers share a pool in all of them, and no pool of one is larger than the next
/// one's.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/pool_layout.hpp"

namespace hotset::lab {

class size_ladder {
 public:
  /// A key's word has a bit for each.
  static constexpr std::size_t most_sizes = 64;

  /// True if `larger` may stand above `smaller`.
  [[nodiscard]] static bool ascend(const pool_layout& smaller, const pool_layout& larger) {
    if (smaller.pools() != larger.pools()) return false;
    for (const auto layer : each<layer_id>(smaller.shape().layers))
      if (smaller.pool_of_layer(layer) != larger.pool_of_layer(layer)) return false;
    for (const auto pool : each<pool_id>(smaller.pools()))
      if (smaller.at(pool).slots > larger.at(pool).slots) return false;
    return true;
  }

  /// Pre: 1..most_sizes layouts, and they ascend.
  explicit size_ladder(std::span<const pool_layout* const> layouts)
      : shape_(layouts.front()->shape()), sizes_(layouts.size()), pools_(layouts.front()->pools()) {
    for (const auto layer : each<layer_id>(shape_.layers))
      pool_of_.push_back(layouts.front()->pool_of_layer(layer));
    for (const auto pool : each<pool_id>(pools_))
      for (const auto* layout : layouts)
        slots_.push_back(static_cast<std::uint32_t>(layout->at(pool).slots));
  }

  [[nodiscard]] const geometry& shape() const noexcept { return shape_; }
  [[nodiscard]] std::size_t sizes() const noexcept { return sizes_; }
  [[nodiscard]] std::size_t pools() const noexcept { return pools_; }
  [[nodiscard]] pool_id pool_of(layer_id layer) const noexcept { return pool_of_[layer]; }
  /// By size.
  [[nodiscard]] std::span<const std::uint32_t> slots(pool_id pool) const noexcept {
    return std::span(slots_).subspan(index_of(pool) * sizes_, sizes_);
  }
  /// What stands in a pool between one size and the next smaller one.
  [[nodiscard]] std::size_t gap(pool_id pool, std::size_t size) const noexcept {
    const auto room = slots(pool);
    return size == 0 ? room[0] : room[size] - room[size - 1];
  }

 private:
  geometry shape_;
  std::size_t sizes_;
  std::size_t pools_;
  per_layer<pool_id> pool_of_;
  std::vector<std::uint32_t> slots_;  // [pools][sizes]
};

}  // namespace hotset::lab
