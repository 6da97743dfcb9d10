// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The slots of a cache as a pool that gives memory back and takes more; quotas of layers change with it.
///
/// Rule: memory for the larger of both totals; layers that lose slots evict in policy order; those that gain take the
/// spare ones; residents are gathered in the first slots, their bytes copied after them; memory for the new total.
/// Source: WiSP Appendix D (the expert-scratch resize), for any quotas. tinyserve's shrink left residents above the new
/// capacity: here a slot's memory goes only when it holds no resident.
/// Deviations: none.
/// Cost: O(slots), and a copy of each resident that lies too high. Its own books take no memory after construction; for drained
/// points.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/status.hpp"
#include "hotset/transfer/memory/slot_bank_layout.hpp"

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
        class_of_(layers()),
        asked_(layers()),
        before_(layers()),
        last_(layers()) {
    for (std::size_t p = 0; p < layout().pools(); ++p) {
      const auto& pool = layout().at(static_cast<pool_id>(p));
      const auto c = index_of(pool.size_class);
      most_.resize(std::max(most_.size(), c + 1));
      most_[c] += static_cast<std::size_t>(pool.slots);
    }
    for (const auto l : class_of_.ids()) {
      class_of_[l] = index_of(layout().at(layout().pool_of_layer(l)).size_class);
      last_[l] = pages().quota(l);
    }
    wanted_.resize(most_.size());
    held_.resize(most_.size());
  }

  /// Takes memory for the first time and gives every layer `units` slots. Pre: nothing is resident.
  /// Errors: as `grow`; then the bank holds nothing.
  status open(std::uint64_t units) noexcept {
    const auto done = resize(units);
    if (done == status::ok) last_ = asked_;
    return done;
  }

  /// Bytes of one slot in every layer.
  [[nodiscard]] std::uint64_t unit_bytes() const noexcept {
    std::uint64_t bytes = 0;
    for (const auto c : class_of_) bytes += bank_->slot_bytes(c);
    return bytes;
  }
  /// The smallest quota of a layer.
  [[nodiscard]] std::uint64_t capacity() const noexcept {
    auto least = pages().quota(layer_id{});
    for (const auto l : class_of_.ids()) least = std::min(least, pages().quota(l));
    return static_cast<std::uint64_t>(least);
  }
  /// Slots that a token needs; residents beyond them can be fetched again.
  [[nodiscard]] std::uint64_t in_use() const noexcept {
    auto most = pages().least_quota(layer_id{});
    for (const auto l : class_of_.ids()) most = std::max(most, pages().least_quota(l));
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
  /// where a copy on it did, then no expert is resident.
  status set_quotas(std::span<const std::int32_t> quotas) noexcept {
    if (const auto bad = check(quotas); bad != status::ok) return bad;
    if (const auto lost = cache_->drain(); lost != status::ok) return lost;
    if (!drained()) return status::busy;
    if (const auto failed = bank_->finish(*stream_); failed != status::ok) return failed;
    for (const auto l : before_.ids()) before_[l] = pages().quota(l);
    if (const auto refused = take_memory(); refused != status::ok) return refused;
    auto done = change_quotas(quotas, true);
    if (done == status::ok && (done = gather()) == status::ok) {
      std::swap(last_, before_);
      give_memory(wanted_);
      return status::ok;
    }
    (void)change_quotas(before_.values(), false);
    // If gathering is refused again, the larger memory stays: a resident needs its slot.
    if (gather() == status::ok) give_memory(held_);
    return done;
  }
  /// Gives every layer the quota that it had before the last resize that succeeded, equal or not.
  /// Errors: as set_quotas: exceeds_memory where somebody else has taken the memory since.
  status undo() noexcept {
    asked_ = last_;
    return set_quotas(asked_.values());
  }

 private:
  using counts = std::vector<std::size_t>;  ///< slots by size class
  using layer_quotas = per_layer<std::int32_t>;

  [[nodiscard]] const auto& pages() const noexcept { return cache_->pager(); }
  [[nodiscard]] const pool_layout& layout() const noexcept { return pages().layout(); }
  [[nodiscard]] std::size_t layers() const noexcept { return layout().shape().layer_count(); }

  status resize(std::uint64_t units) noexcept {
    if (units > layout().shape().expert_count()) return status::invalid_argument;
    std::ranges::fill(asked_, static_cast<std::int32_t>(units));
    return set_quotas(asked_.values());
  }
  /// `wanted_` becomes the slots that the quotas come to.
  [[nodiscard]] status check(std::span<const std::int32_t> wanted) noexcept {
    if (wanted.size() != layers() || layout().pools() != layers() ||
        bank_->slots() != layout().slots())
      return status::invalid_argument;
    std::ranges::fill(wanted_, 0);
    for (const auto l : class_of_.ids()) {
      const auto quota = wanted[index_of(l)];
      if (quota < pages().least_quota(l) || quota > layout().shape().experts)
        return status::invalid_argument;
      wanted_[class_of_[l]] += static_cast<std::size_t>(quota);
    }
    for (std::size_t c = 0; c < wanted_.size(); ++c)
      if (wanted_[c] > most_[c]) return status::exceeds_memory;
    return status::ok;
  }
  /// Memory for the larger of what is held and what is wanted; for all classes, or for none.
  status take_memory() noexcept {
    for (std::size_t c = 0; c < wanted_.size(); ++c) {
      held_[c] = bank_->held(c);
      if (wanted_[c] <= held_[c] || bank_->hold(c, wanted_[c]) == status::ok) continue;
      while (c-- > 0) (void)bank_->hold(c, held_[c]);
      return status::exceeds_memory;
    }
    return status::ok;
  }
  void give_memory(const counts& kept) noexcept {
    for (std::size_t c = 0; c < kept.size(); ++c) (void)bank_->hold(c, kept[c]);
  }
  /// Residents into the first slots of their class, with their bytes. If the bytes do not follow, no expert is
  /// resident.
  status gather() noexcept {
    auto copied = status::ok;
    const auto moved = cache_->compact([&](slot_id from, slot_id to) {
      if (const auto code = bank_->copy_slot(from, to, *stream_); code != status::ok) copied = code;
    });
    if (const auto code = bank_->finish(*stream_); code != status::ok) copied = code;
    if (copied == status::ok) return moved;
    for (const auto l : class_of_.ids()) (void)cache_->invalidate(l);
    return copied;
  }
  /// Layers that lose slots go first: the others take them. Stops at a refusal if `stops`, and returns it.
  status change_quotas(std::span<const std::int32_t> to, bool stops) noexcept {
    for (const bool losing : {true, false})
      for (const auto l : class_of_.ids()) {
        const auto now = pages().quota(l);
        const auto quota = to[index_of(l)];
        if (quota == now || (quota < now) != losing) continue;
        const auto refused = cache_->set_quota(l, quota);
        if (refused != status::ok && stops) return refused;
      }
    return status::ok;
  }

  Cache* cache_;
  Bank* bank_;
  stream_type* stream_;
  per_layer<std::size_t> class_of_;
  layer_quotas asked_;
  layer_quotas before_;  ///< before the change under way
  layer_quotas last_;    ///< before the last change
  counts most_;          ///< slots of the layout
  counts wanted_;        ///< slots that the quotas asked for come to
  counts held_;          ///< slots that had memory before the change
};

}  // namespace hotset
