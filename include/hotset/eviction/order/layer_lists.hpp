// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Numbers one list for each layer and precision, for policies that keep the slots of a layer together.

#include <cstddef>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/pool_layout.hpp"

namespace hotset {

/// A slot keeps its precision whatever pool a quota change lends it to. Complexity: O(1).
class layer_lists {
 public:
  explicit layer_lists(const pool_layout& layout)
      : precisions_(layout.precisions()), count_(layout.shape().layer_count() * precisions_) {
    for (const auto l : each<layer_id>(layout.shape().layers))
      for (std::size_t p = 0; p < precisions_; ++p)
        pool_.push_back(layout.pool_of(l, static_cast<precision_id>(p)));
    for (std::size_t p = 0; p < layout.pools(); ++p)
      pool_precision_.push_back(layout.at(static_cast<pool_id>(p)).precision);
    if (precisions_ == 1) return;
    for (std::size_t s = 0; s < layout.slots(); ++s)
      slot_precision_.push_back(pool_precision_[layout.pool_of_slot(static_cast<slot_id>(s))]);
  }

  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  /// The list of a layer's slots that a pool holds. Pre: the pool serves the layer.
  [[nodiscard]] std::size_t in_pool(std::size_t layer, pool_id pool) const noexcept {
    return layer * precisions_ + index_of(pool_precision_[pool]);
  }
  /// The list that a slot of the layer's is in.
  [[nodiscard]] std::size_t of(layer_id layer, slot_id slot) const noexcept {
    const auto first = index_of(layer) * precisions_;
    return precisions_ == 1 ? first : first + index_of(slot_precision_[slot]);
  }
  /// The pool that the list belongs to.
  [[nodiscard]] pool_id pool(std::size_t list) const noexcept { return pool_[list]; }

 private:
  std::size_t precisions_ = 1;
  std::size_t count_ = 0;
  std::vector<pool_id> pool_;  ///< [layers][precisions]
  per_pool<precision_id> pool_precision_;
  per_slot<precision_id> slot_precision_;  ///< empty with one precision
};

}  // namespace hotset
