// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Future uses for offline policies: in the order of a pool, and those of a layer's next visit.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/pool_layout.hpp"

namespace hotset {

/// Future visits that use each key. Memory: 8 bytes per use. With token groups, a group is an event.
class future_uses {
 public:
  /// Use of a key at an ordinal.
  struct event {
    std::uint64_t ordinal = 0;
    expert_key key{};
  };
  /// Comes after every ordinal: the key is not used again.
  static constexpr std::uint32_t never = std::numeric_limits<std::uint32_t>::max();

  /// Errors: descending ordinals, or ordinals of 2^32 - 1 or more; keys outside the shape; 2^32 - 1 uses or more.
  /// An event that repeats an earlier (ordinal, key) counts once.
  static result<future_uses> create(const geometry& shape, std::span<const event> events) {
    if (events.size() >= never)
      return refusal("a future of ", events.size(), " events, accepted: fewer than 4294967295");
    future_uses out;
    out.keys_ = shape.keys();
    out.keys_in_order_.reserve(events.size());
    out.ordinals_.reserve(events.size());
    std::vector<std::uint64_t> last(shape.keys(), std::uint64_t{never});
    for (std::size_t n = 0; n < events.size(); ++n) {
      const auto& e = events[n];
      const auto refuse = [&](const char* what) {
        return refusal("event ", n, ": ordinal ", e.ordinal, ", layer ", e.key.layer, ", expert ",
                       e.key.expert, ", accepted: ", what);
      };
      if (!shape.contains(e.key)) return refuse("keys of the geometry");
      if (e.ordinal >= never) return refuse("ordinals below 4294967295");
      if (n > 0 && e.ordinal < events[n - 1].ordinal) return refuse("ordinals that do not fall");
      const auto k = shape.index(e.key);
      if (last[k] == e.ordinal) continue;
      last[k] = e.ordinal;
      out.keys_in_order_.push_back(static_cast<std::uint32_t>(k));
      out.ordinals_.push_back(static_cast<std::uint32_t>(e.ordinal));
    }
    return out;
  }

  [[nodiscard]] std::size_t keys() const noexcept { return keys_; }
  /// Shape: [uses]. Key index of every use, by ascending ordinal.
  [[nodiscard]] std::span<const std::uint32_t> keys_in_order() const noexcept {
    return keys_in_order_;
  }
  /// Shape: [uses]. Ordinal of every use.
  [[nodiscard]] std::span<const std::uint32_t> ordinals() const noexcept { return ordinals_; }

 private:
  std::size_t keys_ = 0;
  std::vector<std::uint32_t> keys_in_order_;
  std::vector<std::uint32_t> ordinals_;
};

/// Refuses, in the name of a policy, a future that is absent or has other keys than the shape. Null: any shape.
[[nodiscard]] inline validation check_future(std::string_view policy, const future_uses* future,
                                             const geometry* shape = nullptr) {
  if (future == nullptr)
    return refusal(policy, " future = none, accepted: the uses of the trace to come");
  if (shape != nullptr && future->keys() != shape->keys())
    return refusal(policy, " future has ", future->keys(), " keys, accepted: layers x experts (",
                   shape->keys(), ")");
  return std::nullopt;
}

/// Uses in the order in which an offline policy examines them: numbered pool by pool, the last use of a pool first.
/// Immutable: policies with any numbers of slots may share one if the same layers share their pools.
/// Memory: 12 bytes per use and 4 per key.
class use_order {
 public:
  /// No use.
  static constexpr std::uint32_t none = future_uses::never;

  use_order() = default;
  /// Pre: the future has the layout's shape. Complexity: O(uses).
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
    std::size_t width = 0;
    std::uint32_t last = none;
    for (auto n = keys.size(); n-- > 0;) {
      const auto key = keys[n];
      const auto use = next[pool_of(key)]++;
      const auto ordinal = future.ordinals()[n];
      width = ordinal == last ? width + 1 : 1;
      last = ordinal;
      widest_ = std::max(widest_, width);
      ordinals_[use] = ordinal;
      keys_[use] = key;
      following_[use] = first_[key];
      first_[key] = static_cast<std::uint32_t>(use);
    }
  }

  /// Returns true if the layout has the numbered keys, in the same pools.
  [[nodiscard]] bool fits(const pool_layout& layout) const noexcept {
    if (first_.size() != layout.shape().keys() || ends_.size() != layout.pools() ||
        pool_of_layer_.size() != layout.shape().layer_count())
      return false;
    for (const auto l : each<layer_id>(layout.shape().layers))
      if (pool_of_layer_[index_of(l)] != layout.pool_of_layer(l)) return false;
    return true;
  }
  [[nodiscard]] std::size_t size() const noexcept { return keys_.size(); }
  /// One past the number of a pool's first use, which is the last in its order.
  [[nodiscard]] std::size_t end(pool_id pool) const noexcept { return ends_[pool]; }
  /// Most uses with one ordinal. Never 0.
  [[nodiscard]] std::size_t widest() const noexcept { return widest_; }
  /// Shape: [uses]. Visit of each use.
  [[nodiscard]] std::span<const std::uint32_t> ordinals() const noexcept { return ordinals_; }
  /// Shape: [uses]. Next use of the same key, or none.
  [[nodiscard]] std::span<const std::uint32_t> following() const noexcept { return following_; }
  /// Shape: [uses]. Key index of each use.
  [[nodiscard]] std::span<const std::uint32_t> keys() const noexcept { return keys_; }
  /// Shape: [keys]. First use of each key, or none.
  [[nodiscard]] std::span<const std::uint32_t> first() const noexcept { return first_; }

 private:
  std::vector<std::uint32_t> ordinals_, following_, keys_;
  std::vector<std::uint32_t> first_;
  per_pool<std::size_t> ends_;
  std::vector<pool_id> pool_of_layer_;
  std::size_t widest_ = 1;
};

/// Returns the order of one future for a layout; policies of several pagers share it.
using shared_use_orders = std::function<std::shared_ptr<const use_order>(const pool_layout&)>;

/// Answers whether the next visit of a key's own layer uses the key. A visit without experts does not count; with
/// token groups, a group is a visit.
/// Threads: compatible; each layer remembers the visit of its last query. Memory: 12 bytes per visit, 4 per use.
class next_visits {
 public:
  /// Has no layers: no key is used.
  next_visits() = default;
  /// Pre: future.keys() == shape.keys().
  next_visits(const geometry& shape, const future_uses& future)
      : experts_(shape.expert_count()), layers_(shape.layer_count()) {
    for (std::size_t n = 0; n < future.ordinals().size(); ++n) {
      const auto key = future.keys_in_order()[n];
      const auto ordinal = future.ordinals()[n];
      auto& layer = layers_[key / experts_];
      if (layer.ordinals.empty() || layer.ordinals.back() != ordinal) {
        layer.ordinals.push_back(ordinal);
        layer.begins.push_back(layer.keys.size());
      }
      layer.keys.push_back(key);
    }
    for (auto& layer : layers_) layer.begins.push_back(layer.keys.size());
  }

  /// Returns whether the first visit of the key's layer with the ordinal `from` or a later one uses the key.
  /// Complexity: O(uses of the visit), plus O(log visits) if the last query was about another visit.
  [[nodiscard]] bool uses(expert_key key, std::uint64_t from) noexcept {
    const auto l = index_of(key.layer);
    if (l >= layers_.size()) return false;
    auto& layer = layers_[l];
    if (!stands(layer, from)) {
      const auto found = std::ranges::lower_bound(layer.ordinals, from);
      layer.next = static_cast<std::size_t>(found - layer.ordinals.begin());
    }
    if (layer.next == layer.ordinals.size()) return false;
    const auto first = layer.begins[layer.next];
    const auto used = std::span(layer.keys).subspan(first, layer.begins[layer.next + 1] - first);
    return std::ranges::find(used, l * experts_ + index_of(key.expert)) != used.end();
  }

 private:
  struct layer_visits {
    std::vector<std::uint32_t> ordinals;  // [visit] ascending
    std::vector<std::size_t> begins;      // [visit + 1] position in keys
    std::vector<std::uint32_t> keys;
    std::size_t next = 0;  // a visit, or their number: none is left
  };

  static bool stands(const layer_visits& layer, std::uint64_t from) noexcept {
    const auto n = layer.next;
    return (n == layer.ordinals.size() || layer.ordinals[n] >= from) &&
           (n == 0 || layer.ordinals[n - 1] < from);
  }
  std::size_t experts_ = 0;
  std::vector<layer_visits> layers_;
};

}  // namespace hotset
