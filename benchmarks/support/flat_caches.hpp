// SPDX-License-Identifier: Apache-2.0
#pragma once
/// LRU caches as an engine would write them by hand: the floors that hotset is compared with.

#include <cstddef>
#include <cstdint>
#include <list>
#include <unordered_map>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"

namespace benchmarks {

/// Bare event-atomic LRU per layer: a stamp per slot, a scan for the oldest. Pre: at most 64 distinct ids a visit,
/// no repeated and no invalid ids: it neither filters nor deduplicates.
class flat_lru {
 public:
  flat_lru(std::int32_t layers, std::int32_t experts, std::int32_t slots)
      : experts_(static_cast<std::size_t>(experts)),
        slots_(static_cast<std::size_t>(slots)),
        slot_of_(static_cast<std::size_t>(layers) * experts_, -1),
        owner_(static_cast<std::size_t>(layers) * slots_, -1),
        stamp_(static_cast<std::size_t>(layers) * slots_, 0) {}

  void visit(hotset::layer_id layer, hotset::id_view<hotset::expert_id> ids) noexcept {
    std::int32_t* const slot_of = &slot_of_[index_of(layer) * experts_];
    std::int32_t* const owner = &owner_[index_of(layer) * slots_];
    std::uint32_t* const stamp = &stamp_[index_of(layer) * slots_];
    std::size_t missed[64];
    std::size_t misses = 0;
    const auto now = clock_;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto slot = slot_of[index_of(ids[i])];
      if (slot >= 0) {
        stamp[slot] = now + static_cast<std::uint32_t>(i) + 1;
        ++hits_;
      } else {
        missed[misses++] = i;
      }
    }
    for (std::size_t m = 0; m < misses; ++m) {
      std::size_t oldest = 0;
      for (std::size_t s = 1; s < slots_; ++s) oldest = stamp[s] < stamp[oldest] ? s : oldest;
      if (owner[oldest] >= 0) slot_of[owner[oldest]] = -1;
      owner[oldest] = number(ids[missed[m]]);
      slot_of[owner[oldest]] = static_cast<std::int32_t>(oldest);
      stamp[oldest] = now + static_cast<std::uint32_t>(missed[m]) + 1;
    }
    clock_ = now + static_cast<std::uint32_t>(ids.size());
  }
  [[nodiscard]] std::uint64_t hits() const noexcept { return hits_; }

 private:
  std::size_t experts_;
  std::size_t slots_;
  std::vector<std::int32_t> slot_of_;
  std::vector<std::int32_t> owner_;
  std::vector<std::uint32_t> stamp_;
  std::uint32_t clock_ = 0;
  std::uint64_t hits_ = 0;
};

/// The textbook form: a std::list in recency order and a hash map per layer.
class list_lru {
 public:
  list_lru(std::int32_t layers, std::int32_t, std::int32_t slots)
      : slots_(static_cast<std::size_t>(slots)), layers_(static_cast<std::size_t>(layers)) {}

  void visit(hotset::layer_id layer, hotset::id_view<hotset::expert_id> ids) {
    auto& cache = layers_[index_of(layer)];
    for (const auto expert : ids) {
      const auto id = number(expert);
      const auto found = cache.where.find(id);
      if (found != cache.where.end()) {
        cache.order.splice(cache.order.end(), cache.order, found->second);
        ++hits_;
      } else {
        cache.where[id] = cache.order.insert(cache.order.end(), id);
      }
    }
    while (cache.order.size() > slots_) {
      cache.where.erase(cache.order.front());
      cache.order.pop_front();
    }
  }
  [[nodiscard]] std::uint64_t hits() const noexcept { return hits_; }

 private:
  struct cache_of_layer {
    std::list<std::int32_t> order;
    std::unordered_map<std::int32_t, std::list<std::int32_t>::iterator> where;
  };
  std::size_t slots_;
  std::vector<cache_of_layer> layers_;
  std::uint64_t hits_ = 0;
};

}  // namespace benchmarks
