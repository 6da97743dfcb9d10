// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Hand-written caches, as in an engine: the floors that hotset is compared with.

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"

namespace benchmarks {

/// Bare event-atomic LRU per layer: a stamp per slot, a scan for the oldest. Pre: at most 64 distinct ids a visit,
/// without repeated or invalid ids: it neither filters nor deduplicates.
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

/// A copy that a visit requests.
struct dense_copy {
  std::int32_t key = 0, slot = 0, victim = 0;  ///< victim: -1 for a free slot
};

/// LRU or FIFO over all layers with a visit's semantics only: repeated and invalid ids are ignored, no expert of the
/// visit evicts another, and copies are listed with their victims. A doubly linked list of slots in arrays. Pre: no
/// visit has more than 64 ids, nor more than there are slots.
template <bool UsesMove>
class dense_list {
 public:
  dense_list(std::int32_t layers, std::int32_t experts, std::int32_t slots)
      : experts_(static_cast<std::uint32_t>(experts)),
        head_(static_cast<std::uint32_t>(slots)),
        seen_in_(experts_, 0),
        slot_of_(static_cast<std::size_t>(layers) * experts_, -1),
        owner_(static_cast<std::size_t>(slots), -1),
        previous_(head_ + 1),
        next_(head_ + 1),
        copies_(64) {
    for (std::uint32_t n = 0; n <= head_; ++n) {
      next_[n] = n == head_ ? 0 : n + 1;
      previous_[n] = n == 0 ? head_ : n - 1;
    }
  }

  /// Returns the copies; valid until the next visit.
  std::span<const dense_copy> visit(hotset::layer_id layer,
                                    hotset::id_view<hotset::expert_id> ids) noexcept {
    const auto first = static_cast<std::uint32_t>(layer) * experts_;
    std::uint32_t keys[64];
    std::int32_t slots[64];
    std::size_t distinct = 0;
    std::size_t missing = 0;
    ++visit_;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto id = static_cast<std::uint32_t>(ids[i]);
      if (id >= experts_ || seen_in_[id] == visit_) continue;
      seen_in_[id] = visit_;
      keys[distinct] = first + id;
      slots[distinct] = slot_of_[first + id];
      missing += slots[distinct++] < 0;
    }
    hits_ += distinct - missing;
    if (UsesMove)
      for (std::size_t i = 0; i < distinct; ++i)
        if (slots[i] >= 0) unlink(static_cast<std::uint32_t>(slots[i]));
    std::size_t copied = 0;
    auto oldest = next_[head_];
    for (std::size_t i = 0; i < distinct; ++i) {
      if (slots[i] < 0) {
        while (!UsesMove && is_used(owner_[oldest], first)) oldest = next_[oldest];
        const auto slot = oldest;
        oldest = next_[oldest];
        unlink(slot);
        copies_[copied++] = {static_cast<std::int32_t>(keys[i]), static_cast<std::int32_t>(slot),
                             owner_[slot]};
        if (owner_[slot] >= 0) slot_of_[static_cast<std::size_t>(owner_[slot])] = -1;
        owner_[slot] = static_cast<std::int32_t>(keys[i]);
        slot_of_[keys[i]] = slots[i] = static_cast<std::int32_t>(slot);
        if (!UsesMove) link_last(slot);
      }
      if (UsesMove) link_last(static_cast<std::uint32_t>(slots[i]));
    }
    return {copies_.data(), copied};
  }
  [[nodiscard]] std::uint64_t hits() const noexcept { return hits_; }

 private:
  /// Whether the running visit uses the key.
  [[nodiscard]] bool is_used(std::int32_t key, std::uint32_t first) const noexcept {
    const auto id = static_cast<std::uint32_t>(key) - first;
    return id < experts_ && seen_in_[id] == visit_;
  }
  void unlink(std::uint32_t n) noexcept {
    next_[previous_[n]] = next_[n];
    previous_[next_[n]] = previous_[n];
  }
  void link_last(std::uint32_t n) noexcept {
    const auto last = previous_[head_];
    previous_[n] = last;
    next_[n] = head_;
    next_[last] = previous_[head_] = n;
  }

  std::uint32_t experts_;
  std::uint32_t head_;
  std::uint32_t visit_ = 0;
  std::vector<std::uint32_t> seen_in_;  ///< [expert]
  std::vector<std::int32_t> slot_of_;   ///< [key]
  std::vector<std::int32_t> owner_;     ///< [slot] key
  std::vector<std::uint32_t> previous_, next_;
  std::vector<dense_copy> copies_;
  std::uint64_t hits_ = 0;
};
using dense_lru = dense_list<true>;
using dense_fifo = dense_list<false>;

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
