// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The uses to come as an offline policy goes through them: numbered pool by pool, the last one of a pool first.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/trace/future_uses.hpp"

namespace hotset {

/// It does not change, so that any number of policies over the same layers' pools may share one, whatever their sizes.
/// Memory: 12 bytes per use and 4 per key.
class use_order {
 public:
  /// Stands where there is no use.
  static constexpr std::uint32_t none = future_uses::never;

  use_order() = default;
  /// Pre: the future is of the layout's shape. Complexity: O(uses).
  use_order(const pool_layout& layout, const future_uses& future)
      : first_(future.keys(), none), ends_(layout.pools(), 0) {
    const auto keys = future.keys_in_order();
    const auto experts = layout.shape().expert_count();
    for (const auto l : each<layer_id>(layout.shape().layers))
      pool_of_layer_.push_back(layout.pool_of_layer(l));
    const auto pool_of = [&](std::size_t key) { return pool_of_layer_[key / experts]; };
    for (const auto key : keys) ++ends_[pool_of(key)];
    auto next = ends_;
    std::size_t end = 0;
    for (const auto p : ends_.ids()) {
      next[p] = end;
      end = ends_[p] += end;
    }
    ordinals_.resize(keys.size());
    following_.resize(keys.size());
    keys_.resize(keys.size());
    std::vector<std::size_t> unseen(future.keys());  // uses of the key that are not numbered yet
    for (std::size_t k = 0; k < unseen.size(); ++k) unseen[k] = future.uses(k).size();
    std::size_t width = 0;
    std::uint32_t last = none;
    for (auto n = keys.size(); n-- > 0;) {
      const auto key = keys[n];
      const auto use = next[pool_of(key)]++;
      const auto ordinal = future.uses(key)[--unseen[key]];
      width = ordinal == last ? width + 1 : 1;
      last = ordinal;
      widest_ = std::max(widest_, width);
      ordinals_[use] = ordinal;
      keys_[use] = key;
      following_[use] = first_[key];
      first_[key] = static_cast<std::uint32_t>(use);
    }
  }

  /// True if the layout has the keys that were numbered, in the same pools.
  [[nodiscard]] bool fits(const pool_layout& layout) const noexcept {
    if (first_.size() != layout.shape().keys() || ends_.size() != layout.pools() ||
        pool_of_layer_.size() != layout.shape().layer_count())
      return false;
    for (const auto l : each<layer_id>(layout.shape().layers))
      if (pool_of_layer_[index_of(l)] != layout.pool_of_layer(l)) return false;
    return true;
  }
  [[nodiscard]] std::size_t size() const noexcept { return keys_.size(); }
  /// One behind the number of a pool's first use, which is the last in its order.
  [[nodiscard]] std::size_t end(pool_id pool) const noexcept { return ends_[pool]; }
  /// At most so many uses have one ordinal. Never 0.
  [[nodiscard]] std::size_t widest() const noexcept { return widest_; }
  /// Shape: [uses]. The visit of each.
  [[nodiscard]] std::span<const std::uint32_t> ordinals() const noexcept { return ordinals_; }
  /// Shape: [uses]. The next use of the same key, or none.
  [[nodiscard]] std::span<const std::uint32_t> following() const noexcept { return following_; }
  /// Shape: [uses]. Its key, by index.
  [[nodiscard]] std::span<const std::uint32_t> keys() const noexcept { return keys_; }
  /// Shape: [keys]. The first use of each, or none.
  [[nodiscard]] std::span<const std::uint32_t> first() const noexcept { return first_; }

 private:
  std::vector<std::uint32_t> ordinals_, following_, keys_;
  std::vector<std::uint32_t> first_;
  per_pool<std::size_t> ends_;
  std::vector<pool_id> pool_of_layer_;
  std::size_t widest_ = 1;
};

/// Where policies of several pagers get the order of one future from, each for its layout.
using shared_use_orders = std::function<std::shared_ptr<const use_order>(const pool_layout&)>;

}  // namespace hotset
