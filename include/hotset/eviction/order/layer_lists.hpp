// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Numbers one list for each layer and precision, for policies that group slots by layer.

#include <cstddef>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/pool_layout.hpp"

namespace hotset {

/// A slot keeps its precision if a quota change lends it to another pool. Complexity: O(1).
class layer_lists {
 public:
  explicit layer_lists(const pool_layout& layout) : precisions_(layout.precisions()) {
    for (const auto l : each<layer_id>(layout.shape().layers))
      for (std::size_t p = 0; p < precisions_; ++p)
        pool_.push_back(layout.pool_of(l, static_cast<precision_id>(p)));
    for (const auto p : each<pool_id>(layout.pools()))
      pool_precision_.push_back(layout.at(p).precision);
    for (const auto s : each<slot_id>(layout.slots()))
      slot_precision_.push_back(pool_precision_[layout.pool_of_slot(s)]);
  }

  [[nodiscard]] std::size_t count() const noexcept { return pool_.size(); }
  /// List of a layer's slots in a pool. Pre: the pool serves the layer.
  [[nodiscard]] std::size_t in_pool(layer_id layer, pool_id pool) const noexcept {
    return index_of(layer) * precisions_ + index_of(pool_precision_[pool]);
  }
  /// List that holds a slot of the layer.
  [[nodiscard]] std::size_t of(layer_id layer, slot_id slot) const noexcept {
    return index_of(layer) * precisions_ + index_of(slot_precision_[slot]);
  }
  /// Pool of a list.
  [[nodiscard]] pool_id pool(std::size_t list) const noexcept { return pool_[list]; }

 private:
  std::size_t precisions_;
  std::vector<pool_id> pool_;  ///< [layers][precisions]
  per_pool<precision_id> pool_precision_;
  per_slot<precision_id> slot_precision_;
};

}  // namespace hotset
