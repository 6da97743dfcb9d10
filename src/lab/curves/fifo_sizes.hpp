// SPDX-License-Identifier: Apache-2.0
#pragma once
/// One walk over the visits for all sizes of fifo, whose larger caches may lack what its smaller ones hold.
///
/// Rule: a key has a bit for each size that holds it; each size has a ring of its keys in order of arrival. A miss takes the place
///       of the oldest key that the visit does not use, and what is older keeps its place.
/// Source: textbook; event-atomic form as the pager's.
/// Cost: O(1) for a use that all sizes hold; else O(1) per size that misses, and the visit's own keys that are passed
///       over. Memory: 8 bytes per key, 4 per key and size, 4 per slot.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/trace/visit_sequence.hpp"
#include "lab/curves/distinct_experts.hpp"
#include "lab/curves/size_ladder.hpp"
#include "lab/curves/size_tally.hpp"
#include "lab/progress.hpp"

namespace hotset::lab {

class fifo_sizes {
 public:
  explicit fifo_sizes(const size_ladder& ladder)
      : ladder_(ladder),
        sizes_(ladder.sizes()),
        absent_(ladder.shape().keys(), all(sizes_)),
        used_(ladder.shape().keys()),
        left_(ladder.shape().keys() * sizes_, never),
        misses_(sizes_),
        missing_(ladder.shape().distinct_per_visit()) {
    for (const auto pool : each<pool_id>(ladder.pools()))
      for (const auto slots : ladder.slots(pool)) rings_.emplace_back(slots);
  }

  void run(const visit_sequence& visits, size_tally& tally) {
    distinct_experts distinct(visits.shape());
    progress told(visits.size() * sizes_);
    for (std::size_t i = 0; i < visits.size(); ++i) {
      told.at(i * sizes_);
      const auto view = visits[i];
      const auto experts = distinct.of(view.experts);
      std::fill(misses_.begin(), misses_.end(), 0U);
      const auto missing = look_up(view.layer, experts);
      for (const auto& miss : std::span(missing_).first(missing))
        take_in(view, miss, distinct, tally);
      tally.visit(view, experts.size(), distinct.ignored(), misses_);
    }
  }

 private:
  static constexpr std::uint32_t never = std::numeric_limits<std::uint32_t>::max();
  struct missing_key {
    std::uint32_t key = 0;
    std::uint64_t sizes = 0;
  };
  /// Keys in order of arrival, the oldest at `first` once all places are taken.
  struct arrivals {
    explicit arrivals(std::uint32_t slots) : keys(slots) {}
    std::vector<std::uint32_t> keys;
    std::uint32_t first = 0, held = 0;

    [[nodiscard]] std::uint32_t after(std::uint32_t place) const noexcept {
      return place + 1 == keys.size() ? 0 : place + 1;
    }
  };
  static std::uint64_t all(std::size_t sizes) noexcept {
    return ~std::uint64_t{0} >> (size_ladder::most_sizes - sizes);
  }

  /// Judges the whole visit before any of its keys arrives.
  std::size_t look_up(layer_id layer, std::span<const expert_id> experts) noexcept {
    const auto first = index_of(layer) * ladder_.shape().expert_count();
    std::size_t missing = 0;
    for (const auto expert : experts) {
      const auto key = static_cast<std::uint32_t>(first + index_of(expert));
      missing_[missing] = {key, absent_[key]};
      missing += absent_[key] != 0 ? 1U : 0U;
    }
    return missing;
  }
  void take_in(const routing_view& view, const missing_key& miss, const distinct_experts& visited,
               size_tally& tally) noexcept {
    const auto pool = ladder_.pool_of(view.layer);
    const auto step = static_cast<std::uint32_t>(view.step);
    if (used_[miss.key] == 0) tally.first_use(pool);
    used_[miss.key] = 1;
    absent_[miss.key] = 0;
    for (auto rest = miss.sizes; rest != 0; rest &= rest - 1) {
      const auto size = static_cast<std::size_t>(std::countr_zero(rest));
      ++misses_[size];
      if (left_[miss.key * sizes_ + size] == step) tally.collide(view.layer, size);
      auto& ring = rings_[index_of(pool) * sizes_ + size];
      if (ring.held < ring.keys.size()) {
        ring.keys[ring.held++] = miss.key;
        continue;
      }
      const auto victim = replace_oldest(ring, miss.key, view.layer, visited);
      absent_[victim] |= rest & (~rest + 1);
      left_[victim * sizes_ + size] = step;
    }
  }
  /// Of those that the visit does not use. Pre: there is one.
  std::uint32_t replace_oldest(arrivals& ring, std::uint32_t key, layer_id layer,
                               const distinct_experts& visited) noexcept {
    auto at = ring.first;
    while (is_own(ring.keys[at], layer, visited)) [[unlikely]] at = ring.after(at);
    const auto victim = ring.keys[at];
    // What was passed over stays in front: it moves up into the victim's place.
    for (; at != ring.first; at = before(ring, at)) ring.keys[at] = ring.keys[before(ring, at)];
    ring.keys[ring.first] = key;
    ring.first = ring.after(ring.first);
    return victim;
  }
  static std::uint32_t before(const arrivals& ring, std::uint32_t place) noexcept {
    return (place == 0 ? static_cast<std::uint32_t>(ring.keys.size()) : place) - 1;
  }
  [[nodiscard]] bool is_own(std::uint32_t key, layer_id layer,
                            const distinct_experts& visited) const noexcept {
    const auto experts = ladder_.shape().expert_count();
    const auto at = key - index_of(layer) * experts;
    return at < experts && visited.contains(static_cast<expert_id>(at));
  }

  const size_ladder& ladder_;
  std::size_t sizes_;
  std::vector<std::uint64_t> absent_;  // [keys] sizes
  std::vector<std::uint8_t> used_;     // [keys] ever
  std::vector<std::uint32_t> left_;    // [keys][sizes] step
  std::vector<std::uint32_t> misses_;  // of the visit, by size
  std::vector<missing_key> missing_;
  std::vector<arrivals> rings_;  // [pools][sizes]
};

}  // namespace hotset::lab
