// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Hand-written orders of eviction for one shared pool, as in an engine: those kept in lists of slots.
///
/// An order has `choose(visit, count, give)`, called before a visit takes place: it calls give(slot) for each victim,
/// first victim first, never for a slot that the visit uses. It is called for each visit, with a count of 0 if
/// nothing is evicted; there are always enough slots. `commit(visit)` is called when the visit has taken place.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "hotset/core/geometry.hpp"
#include "hotset/eviction/popularity.hpp"
#include "hotset/policy/policy_config.hpp"
#include "support/flat_visit.hpp"

namespace benchmarks {

/// Doubly linked lists of slots in arrays; the heads follow the slots.
class slot_lists {
 public:
  slot_lists(std::int32_t slots, std::size_t lists)
      : slots_(static_cast<std::uint32_t>(slots)), next_(slots_ + lists), previous_(next_.size()) {
    for (std::uint32_t n = 0; n < next_.size(); ++n) next_[n] = previous_[n] = n;
  }
  /// Removes the slot from its list, if any.
  void take_out(std::uint32_t slot) noexcept {
    next_[previous_[slot]] = next_[slot];
    previous_[next_[slot]] = previous_[slot];
  }
  /// Appends slots that are in no list to one.
  template <class SlotOf>
  void append(std::size_t list, std::size_t count, SlotOf slot_of) noexcept {
    const auto head = slots_ + static_cast<std::uint32_t>(list);
    auto last = previous_[head];
    for (std::size_t i = 0; i < count; ++i) {
      const auto slot = slot_of(i);
      previous_[slot] = last;
      next_[last] = slot;
      last = slot;
    }
    next_[last] = head;
    previous_[head] = last;
  }
  void append(std::size_t list, std::uint32_t slot) noexcept {
    append(list, 1, [slot](std::size_t) { return slot; });
  }
  [[nodiscard]] bool is_empty(std::size_t list) const noexcept {
    return next_[slots_ + list] == slots_ + list;
  }
  /// Calls give for the first wanted slots of a list, at most `count`; returns their number.
  template <class Wanted, class Give>
  std::size_t take(std::size_t list, std::size_t most, Wanted wanted, Give give) const noexcept {
    const auto head = slots_ + static_cast<std::uint32_t>(list);
    std::size_t count = 0;
    for (auto slot = next_[head]; slot != head && count < most; slot = next_[slot]) {
      if (!wanted(slot)) continue;
      give(slot);
      ++count;
    }
    return count;
  }

 private:
  std::uint32_t slots_;
  std::vector<std::uint32_t> next_, previous_;
};

/// Predicate: slots that a visit does not use.
inline auto not_used_by(const flat_visit& visit) noexcept {
  return [&visit](std::uint32_t slot) { return !visit.uses(slot); };
}

namespace orders {

/// LRU or FIFO: one list.
template <bool UsesMove>
class recency {
 public:
  using config = hotset::no_options;

  recency(const hotset::geometry&, std::int32_t slots, const config&) : lists_(slots, 1) {}
  template <class Give>
  void choose(const flat_visit& visit, std::size_t count, Give give) noexcept {
    lists_.take(0, count, not_used_by(visit), give);
  }
  void commit(const flat_visit& visit) noexcept {
    const auto moved = UsesMove ? visit.ids.size() : visit.missed.size();
    const auto slot_of = [&](std::size_t i) { return visit.slot(UsesMove ? i : visit.missed[i]); };
    for (std::size_t i = 0; i < moved; ++i) lists_.take_out(slot_of(i));
    lists_.append(0, moved, slot_of);
  }

 private:
  slot_lists lists_;
};
using lru = recency<true>;
using fifo = recency<false>;

/// protect_hot<lru>: a list of slots with fewer than 4 visits since the fill, and a list of the others.
class protect_hot_lru {
 public:
  using config = hotset::no_options;

  protect_hot_lru(const hotset::geometry&, std::int32_t slots, const config&)
      : lists_(slots, 2), uses_(static_cast<std::size_t>(slots), 0) {}
  template <class Give>
  void choose(const flat_visit& visit, std::size_t count, Give give) noexcept {
    count -= lists_.take(0, count, not_used_by(visit), give);
    lists_.take(1, count, not_used_by(visit), give);
  }
  void commit(const flat_visit& visit) noexcept {
    for (const auto i : visit.missed) uses_[visit.slot(i)] = 0;
    for (std::size_t i = 0; i < visit.ids.size(); ++i) {
      const auto slot = visit.slot(i);
      lists_.take_out(slot);
      lists_.append(++uses_[slot] >= enough ? 1 : 0, slot);
    }
  }

 private:
  static constexpr std::uint32_t enough = 4;

  slot_lists lists_;
  std::vector<std::uint32_t> uses_;  ///< [slot]
};

/// One list per layer: first the running layer's, then downwards from it, then from the last one down. Pre: at most
/// 64 layers.
class furthest_layer {
 public:
  using config = hotset::no_options;

  furthest_layer(const hotset::geometry& shape, std::int32_t slots, const config&)
      : lists_(slots, shape.layer_count()) {}
  template <class Give>
  void choose(const flat_visit& visit, std::size_t count, Give give) noexcept {
    const auto reached = ~std::uint64_t{0} >> (63 - visit.layer);
    count = take(visit, filled_ & reached, count, give);
    take(visit, filled_ & ~reached, count, give);
  }
  void commit(const flat_visit& visit) noexcept {
    const auto slot_of = [&](std::size_t i) { return visit.slot(i); };
    for (std::size_t i = 0; i < visit.ids.size(); ++i) lists_.take_out(slot_of(i));
    lists_.append(visit.layer, visit.ids.size(), slot_of);
    filled_ |= std::uint64_t{1} << visit.layer;
  }

 private:
  /// Returns how many victims are still needed.
  template <class Give>
  std::size_t take(const flat_visit& visit, std::uint64_t layers, std::size_t count,
                   Give give) noexcept {
    while (layers != 0 && count != 0) {
      const auto layer = static_cast<std::size_t>(63 - std::countl_zero(layers));
      const auto bit = std::uint64_t{1} << layer;
      layers ^= bit;
      if (lists_.is_empty(layer)) filled_ ^= bit;
      count -= lists_.take(layer, count, not_used_by(visit), give);
    }
    return count;
  }

  slot_lists lists_;
  std::uint64_t filled_ = 0;  ///< one bit per layer; a set bit's list may be empty
};

/// One list per layer, by arrival, and for each slot the step of its last use. Without prefetch. Pre: at most 64
/// layers.
class least_stale {
 public:
  using config = hotset::no_options;

  least_stale(const hotset::geometry& shape, std::int32_t slots, const config&)
      : lists_(slots, shape.layer_count()), step_of_(static_cast<std::size_t>(slots), 0) {}
  template <class Give>
  void choose(const flat_visit& visit, std::size_t count, Give give) noexcept {
    if (count == 0) return;
    if (step_ != visit.view.step) stale_ = filled_;
    step_ = visit.view.step;
    const auto left = ~std::uint64_t{0} >> (63 - visit.layer);
    count = take<side::left, true>(visit, stale_ & left, count, give);
    count = take<side::left, false>(visit, filled_ & left, count, give);
    count = take<side::right, true>(visit, stale_ & ~left, count, give);
    take<side::right, false>(visit, filled_ & ~left, count, give);
  }
  void commit(const flat_visit& visit) noexcept {
    const auto filled = [&](std::size_t m) { return visit.slot(visit.missed[m]); };
    for (std::size_t i = 0; i < visit.ids.size(); ++i) step_of_[visit.slot(i)] = visit.view.step;
    for (std::size_t m = 0; m < visit.missed.size(); ++m) lists_.take_out(filled(m));
    lists_.append(visit.layer, visit.missed.size(), filled);
    filled_ |= std::uint64_t{1} << visit.layer;
  }

 private:
  enum class side : std::uint8_t { left, right };

  /// On the left the lowest layer first, on the right the highest. Returns how many victims are still needed.
  template <side Side, bool Stale, class Give>
  std::size_t take(const flat_visit& visit, std::uint64_t layers, std::size_t count,
                   Give give) noexcept {
    while (layers != 0 && count != 0) {
      const auto layer = static_cast<std::size_t>(
          Side == side::left ? std::countr_zero(layers) : 63 - std::countl_zero(layers));
      const auto bit = std::uint64_t{1} << layer;
      layers ^= bit;
      bool any = false;
      const auto wanted = [&](std::uint32_t slot) {
        const bool is_one = (step_of_[slot] < step_) == Stale;
        any |= is_one;
        return is_one && !visit.uses(slot);
      };
      count -= lists_.take(layer, count, wanted, give);
      if (Stale && !any) stale_ &= ~bit;
      if (lists_.is_empty(layer)) filled_ &= ~bit;
    }
    return count;
  }

  slot_lists lists_;
  std::vector<std::uint64_t> step_of_;  ///< [slot]
  std::uint64_t filled_ = 0;            ///< one bit per layer; a set bit's list may be empty
  /// One bit per layer; a set bit's layer may have no stale slot.
  std::uint64_t stale_ = 0;
  std::uint64_t step_ = 0;  ///< step of stale_
};

/// One list per rank, lowest first, and the ranks that may have slots.
class ranked_lists {
 public:
  ranked_lists(std::int32_t slots, std::size_t ranks)
      : lists_(slots, ranks), filled_((ranks + 63) / 64, 0), lowest_(filled_.size()) {}
  template <class Give>
  void choose(const flat_visit& visit, std::size_t count, Give give) noexcept {
    for (auto w = lowest_; w < filled_.size() && count != 0; ++w) {
      for (auto ranks = filled_[w]; ranks != 0 && count != 0; ranks &= ranks - 1) {
        const auto rank = w * 64 + static_cast<std::size_t>(std::countr_zero(ranks));
        if (lists_.is_empty(rank)) filled_[w] ^= ranks & -ranks;
        count -= lists_.take(rank, count, not_used_by(visit), give);
      }
      if (w == lowest_ && filled_[w] == 0) ++lowest_;
    }
  }
  void use(std::uint32_t slot, std::size_t rank) noexcept {
    lists_.take_out(slot);
    lists_.append(rank, slot);
    filled_[rank / 64] |= std::uint64_t{1} << rank % 64;
    lowest_ = std::min(lowest_, rank / 64);
  }

 private:
  slot_lists lists_;
  std::vector<std::uint64_t> filled_;  ///< one bit per rank; a set bit's list may be empty
  std::size_t lowest_;                 ///< first word with a bit
};

/// One list per number of uses, over a key's whole history. Pre: no key has 65,536.
class lfu {
 public:
  using config = hotset::no_options;

  lfu(const hotset::geometry& shape, std::int32_t slots, const config&)
      : lists_(slots, 65536), uses_(shape.keys(), 0) {}
  template <class Give>
  void choose(const flat_visit& visit, std::size_t count, Give give) noexcept {
    lists_.choose(visit, count, give);
  }
  void commit(const flat_visit& visit) noexcept {
    for (std::size_t i = 0; i < visit.ids.size(); ++i)
      lists_.use(visit.slot(i), ++uses_[visit.key(i)]);
  }

 private:
  ranked_lists lists_;
  std::vector<std::uint32_t> uses_;  ///< [key]
};

/// One list per count in the profile.
class popularity {
 public:
  using config = hotset::popularity::config;

  popularity(const hotset::geometry& shape, std::int32_t slots, const config& options)
      : popularity(slots, of_keys(shape, options)) {}
  template <class Give>
  void choose(const flat_visit& visit, std::size_t count, Give give) noexcept {
    lists_.choose(visit, count, give);
  }
  void commit(const flat_visit& visit) noexcept {
    for (std::size_t i = 0; i < visit.ids.size(); ++i)
      lists_.use(visit.slot(i), rank_of_[visit.key(i)]);
  }

 private:
  popularity(std::int32_t slots, const std::vector<double>& counts)
      : rank_of_(ranks(counts)), lists_(slots, *std::ranges::max_element(rank_of_) + 1U) {}
  static std::vector<double> of_keys(const hotset::geometry& shape, const config& options) {
    auto counts = options.profile.counts;
    counts.resize(shape.keys(), 0.0);
    return counts;
  }
  static std::vector<std::uint32_t> ranks(const std::vector<double>& counts) {
    auto distinct = counts;
    std::ranges::sort(distinct);
    distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
    std::vector<std::uint32_t> out;
    for (const auto count : counts)
      out.push_back(
          static_cast<std::uint32_t>(std::ranges::lower_bound(distinct, count) - distinct.begin()));
    return out;
  }

  std::vector<std::uint32_t> rank_of_;  ///< [key]
  ranked_lists lists_;
};

}  // namespace orders
}  // namespace benchmarks
