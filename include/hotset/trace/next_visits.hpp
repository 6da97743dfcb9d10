// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Whether the next visit of a key's own layer uses it: a future that ends there.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/trace/future_uses.hpp"

namespace hotset {

/// A visit without experts is none. With token groups, a group is a visit.
/// Threads: compatible; each layer stands at the visit that was last asked for. Memory: 12 bytes a visit, 4 a use, 1 a
/// key.
class next_visits {
 public:
  /// Of no layer.
  next_visits() = default;
  /// Pre: future.keys() == shape.keys().
  next_visits(const geometry& shape, const future_uses& future)
      : experts_(shape.expert_count()), layers_(shape.layer_count()), in_next_(shape.keys(), 0) {
    std::vector<std::size_t> seen(shape.keys(), 0);  // uses of the key so far
    for (const auto key : future.keys_in_order()) {
      auto& layer = layers_[key / experts_];
      const auto ordinal = future.uses(key)[seen[key]++];
      if (layer.ordinals.empty() || layer.ordinals.back() != ordinal) {
        layer.ordinals.push_back(ordinal);
        layer.begins.push_back(layer.keys.size());
      }
      layer.keys.push_back(key);
    }
    for (auto& layer : layers_) {
      layer.begins.push_back(layer.keys.size());
      mark(layer, 1);
    }
  }

  /// Whether the first visit of the key's layer that has the ordinal `from` or a later one uses the key.
  /// Complexity: O(1) while that visit stays the same, else O(log visits) and the uses of two visits.
  [[nodiscard]] bool uses(expert_key key, std::uint64_t from) noexcept {
    const auto l = index_of(key.layer);
    if (l >= layers_.size()) return false;
    auto& layer = layers_[l];
    if (!stands(layer, from)) move(layer, from);
    return in_next_[l * experts_ + index_of(key.expert)] != 0;
  }

 private:
  struct layer_visits {
    std::vector<std::uint32_t> ordinals;  // [visit] ascending
    std::vector<std::size_t> begins;      // [visit + 1] in keys
    std::vector<std::uint32_t> keys;
    std::size_t next = 0;  // a visit, or their number: none is to come
  };

  static bool stands(const layer_visits& layer, std::uint64_t from) noexcept {
    const auto n = layer.next;
    return (n == layer.ordinals.size() || layer.ordinals[n] >= from) &&
           (n == 0 || layer.ordinals[n - 1] < from);
  }
  void move(layer_visits& layer, std::uint64_t from) noexcept {
    mark(layer, 0);
    const auto found = std::ranges::lower_bound(layer.ordinals, from);
    layer.next = static_cast<std::size_t>(found - layer.ordinals.begin());
    mark(layer, 1);
  }
  void mark(const layer_visits& layer, std::uint8_t used) noexcept {
    if (layer.next == layer.ordinals.size()) return;
    for (auto i = layer.begins[layer.next]; i < layer.begins[layer.next + 1]; ++i)
      in_next_[layer.keys[i]] = used;
  }

  std::size_t experts_ = 0;
  std::vector<layer_visits> layers_;
  std::vector<std::uint8_t> in_next_;  // [key]
};

}  // namespace hotset
