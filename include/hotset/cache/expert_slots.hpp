// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The slots of a cache as a pool that gives memory back and takes more; quotas of layers change with it.
///
/// Rule: memory for the larger of both totals; layers that lose slots evict in policy order; those that gain take the
/// spare ones; residents are gathered in the first slots, their bytes copied after them; memory for the new total.
/// Source: WiSP Appendix D (the expert-scratch resize), for any quotas. tinyserve's shrink left residents above the new
/// capacity: here a slot's memory goes only when nobody lives there.
/// Deviations: none.
/// Cost: O(slots), and a copy of each resident that lies too high. Its own books take no memory after construction; for drained
/// points.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/status.hpp"
#include "hotset/transfer/memory/slot_bank.hpp"

namespace hotset {

/// Cache: a slot_cache over per-layer pools. Bank: a slot_bank of a host or a device, elastic, that of the cache's backend.
/// Copies are enqueued on the stream on which slots are read; what other streams read there must have ended before a call. All
/// three outlive it. Threads: as the cache.
/// A unit is a slot in every layer. Between calls the bank holds the slots of all quotas, and no others: after
/// `set_quotas` with unequal ones more than the capacity says. `shrink` and `grow` give every layer the same.
template <class Cache, slot_bank<typename Cache::stream_type> Bank>
class expert_slots {
 public:
  using stream_type = typename Cache::stream_type;

  /// Takes the memory that its own books need.
  expert_slots(Cache& cache, Bank& bank, stream_type& stream)
      : cache_(&cache),
        bank_(&bank),
        stream_(&stream),
        same_(layers()),
        before_(layers()),
        last_(layers()),
        most_(classes()),
        wanted_(classes()),
        held_(classes()),
        larger_(classes()),
        untouched_(classes()) {
    for (std::size_t p = 0; p < layout().pools(); ++p) {
      const auto& pool = layout().at(static_cast<pool_id>(p));
      most_[index_of(pool.size_class)] += static_cast<std::size_t>(pool.slots);
    }
    note_quotas();
    last_ = before_;
  }

  /// Takes memory for the first time and gives every layer `units` slots. Pre: nothing is resident.
  /// Errors: as `grow`; then the bank holds nothing.
  status open(std::uint64_t units) noexcept {
    if (units > experts()) return status::invalid_argument;
    const auto quotas = same_for_all(units);
    if (const auto bad = check(quotas); bad != status::ok) return bad;
    note_quotas();
    auto done = change_quotas(quotas);
    if (done == status::ok) done = gather();
    if (done == status::ok) done = hold(wanted_);
    if (done == status::ok)
      std::ranges::copy(quotas, last_.begin());
    else
      restore();
    return done;
  }

  /// Of one slot in every layer.
  [[nodiscard]] std::uint64_t unit_bytes() const noexcept {
    std::uint64_t bytes = 0;
    for (std::size_t l = 0; l < layers(); ++l) bytes += bank_->slot_bytes(class_of(l));
    return bytes;
  }
  /// The smallest quota of a layer.
  [[nodiscard]] std::uint64_t capacity() const noexcept {
    auto least = pages().quota(layer_id{});
    for (std::size_t l = 1; l < layers(); ++l) least = std::min(least, pages().quota(id(l)));
    return static_cast<std::uint64_t>(least);
  }
  /// What a token needs: residents beyond it can be fetched again.
  [[nodiscard]] std::uint64_t in_use() const noexcept {
    auto most = pages().least_quota(layer_id{});
    for (std::size_t l = 1; l < layers(); ++l) most = std::max(most, pages().least_quota(id(l)));
    return static_cast<std::uint64_t>(most);
  }
  [[nodiscard]] std::uint64_t peak() const noexcept { return in_use(); }
  void reset_peak() noexcept {}
  /// No visit is open and no copy on its way.
  [[nodiscard]] bool drained() const noexcept { return pages().is_idle(); }

  status shrink(std::uint64_t units) noexcept {
    return units > capacity() ? status::invalid_argument : resize(units);
  }
  status grow(std::uint64_t units) noexcept {
    return units < capacity() ? status::invalid_argument : resize(units);
  }
  /// Any quotas, one for each layer. Slots of a size class are worth the same wherever they go.
  /// Errors: invalid_argument, busy (a visit is open), exceeds_memory (memory was refused), or what `drain` of the cache
  /// says; then nothing has changed but experts that were evicted on the way. fill_failed where the stream failed;
  /// where a copy on it did, then nobody is resident.
  status set_quotas(std::span<const std::int32_t> quotas) noexcept {
    if (const auto bad = check(quotas); bad != status::ok) return bad;
    if (const auto lost = cache_->drain(); lost != status::ok) return lost;
    if (!drained()) return status::busy;
    if (const auto failed = bank_->finish(*stream_); failed != status::ok) return failed;
    note_quotas();
    for (std::size_t c = 0; c < larger_.size(); ++c) larger_[c] = std::max(held_[c], wanted_[c]);
    if (const auto refused = hold(larger_); refused != status::ok) return refused;
    auto done = change_quotas(quotas);
    if (done == status::ok && (done = gather()) == status::ok) {
      last_.swap(before_);
      return hold(wanted_);
    }
    restore();
    // Where gathering is refused again, the larger memory stays: nobody may live without.
    if (gather() == status::ok) (void)hold(held_);
    return done;
  }
  /// Gives every layer the quota that it had before the last resize that succeeded, equal or not.
  /// Errors: as set_quotas: exceeds_memory where somebody else has taken the memory since.
  status undo() noexcept {
    std::ranges::copy(last_, same_.begin());
    return set_quotas(same_);
  }

 private:
  using counts = std::vector<std::size_t>;  ///< slots by size class

  [[nodiscard]] const auto& pages() const noexcept { return cache_->pager(); }
  [[nodiscard]] const pool_layout& layout() const noexcept { return pages().layout(); }
  [[nodiscard]] std::size_t layers() const noexcept { return layout().shape().layer_count(); }
  [[nodiscard]] std::uint64_t experts() const noexcept {
    return static_cast<std::uint64_t>(layout().shape().experts);
  }
  static layer_id id(std::size_t layer) noexcept { return static_cast<layer_id>(layer); }
  [[nodiscard]] std::size_t class_of(std::size_t layer) const noexcept {
    return index_of(layout().at(layout().pool_of_layer(id(layer))).size_class);
  }
  [[nodiscard]] std::size_t classes() const noexcept {
    std::size_t count = 0;
    for (std::size_t p = 0; p < layout().pools(); ++p)
      count = std::max(count, index_of(layout().at(static_cast<pool_id>(p)).size_class) + 1);
    return count;
  }

  std::span<const std::int32_t> same_for_all(std::uint64_t units) noexcept {
    std::ranges::fill(same_, static_cast<std::int32_t>(units));
    return same_;
  }
  status resize(std::uint64_t units) noexcept {
    return units > experts() ? status::invalid_argument : set_quotas(same_for_all(units));
  }
  /// What the quotas come to is `wanted_` afterwards.
  [[nodiscard]] status check(std::span<const std::int32_t> quotas) noexcept {
    if (quotas.size() != layers() || layout().pools() != layers()) return status::invalid_argument;
    if (bank_->slots() != layout().slots()) return status::invalid_argument;
    for (std::size_t l = 0; l < layers(); ++l)
      if (quotas[l] < pages().least_quota(id(l)) || quotas[l] > layout().shape().experts)
        return status::invalid_argument;
    count(quotas, wanted_);
    for (std::size_t c = 0; c < wanted_.size(); ++c)
      if (wanted_[c] > most_[c]) return status::exceeds_memory;
    return status::ok;
  }
  void count(std::span<const std::int32_t> quotas, counts& out) const noexcept {
    std::ranges::fill(out, 0);
    for (std::size_t l = 0; l < layers(); ++l)
      out[class_of(l)] += static_cast<std::size_t>(quotas[l]);
  }
  /// What `restore` goes back to, and the slots that it came to.
  void note_quotas() noexcept {
    for (std::size_t l = 0; l < layers(); ++l) before_[l] = pages().quota(id(l));
    count(before_, held_);
  }

  /// All classes, or none of them. What is given back goes first.
  status hold(const counts& slots) noexcept {
    for (std::size_t c = 0; c < slots.size(); ++c) untouched_[c] = bank_->held(c);
    for (std::size_t c = 0; c < slots.size(); ++c)
      if (slots[c] < untouched_[c]) (void)bank_->hold(c, slots[c]);
    for (std::size_t c = 0; c < slots.size(); ++c) {
      if (slots[c] <= untouched_[c] || bank_->hold(c, slots[c]) == status::ok) continue;
      for (std::size_t b = 0; b < c; ++b)
        if (untouched_[b] < slots[b]) (void)bank_->hold(b, untouched_[b]);
      for (std::size_t b = 0; b < slots.size(); ++b)
        if (slots[b] < untouched_[b]) (void)bank_->hold(b, untouched_[b]);
      return status::exceeds_memory;
    }
    return status::ok;
  }
  /// Residents into the first slots of their class, with their bytes. Where these do not follow, nobody is resident.
  status gather() noexcept {
    auto copied = status::ok;
    const auto moved = cache_->compact([&](slot_id from, slot_id to) {
      if (const auto code = bank_->copy_slot(from, to, *stream_); code != status::ok) copied = code;
    });
    if (const auto code = bank_->finish(*stream_); code != status::ok) copied = code;
    if (copied == status::ok) return moved;
    for (std::size_t l = 0; l < layers(); ++l) (void)cache_->invalidate(id(l));
    return copied;
  }

  /// Until one is refused: `restore` then. Those that lose slots go first: the others take them.
  status change_quotas(std::span<const std::int32_t> quotas) noexcept {
    for (const bool losing : {true, false})
      for (std::size_t l = 0; l < layers(); ++l) {
        if (quotas[l] == before_[l] || (quotas[l] < before_[l]) != losing) continue;
        const auto refused = cache_->set_quota(id(l), quotas[l]);
        if (refused != status::ok) return refused;
      }
    return status::ok;
  }
  void restore() noexcept {
    for (const bool losing : {true, false})
      for (std::size_t l = 0; l < layers(); ++l)
        if (before_[l] != pages().quota(id(l)) && (before_[l] < pages().quota(id(l))) == losing)
          (void)cache_->set_quota(id(l), before_[l]);
  }

  Cache* cache_;
  Bank* bank_;
  stream_type* stream_;
  std::vector<std::int32_t> same_;    ///< [layers] quotas that are asked for
  std::vector<std::int32_t> before_;  ///< [layers] quotas before the change under way
  std::vector<std::int32_t> last_;    ///< [layers] quotas before the last change
  counts most_;                       ///< slots of the layout
  counts wanted_;                     ///< of the quotas that are asked for
  counts held_;                       ///< of the quotas before
  counts larger_;                     ///< of both
  counts untouched_;                  ///< before `hold`
};

}  // namespace hotset
