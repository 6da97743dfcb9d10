// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Resizes the slots of a cache: the memory pool grows or shrinks together with the layers' quotas.
///
/// Rule: hold memory for the larger of the old and new total. Layers that lose slots evict in policy order; layers
/// that gain take the spare slots. Move residents to the first slots and copy their bytes. Hold memory for the new
/// total.
/// Source: WiSP Appendix D (the expert-scratch resize), extended to any quotas. tinyserve's shrink left residents
/// above the new capacity; here a slot's memory is freed only if it holds no resident.
/// Deviations: none.
/// Cost: O(slots), and one copy of each resident above the new total. Its bookkeeping allocates nothing after
/// construction. Call it at drained points.

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

/// Cache: a slot_cache with per-layer pools. Bank: the elastic slot_bank, on host or device, of the cache's backend.
/// Copies are enqueued on the stream that reads slots. Pre: work of other streams that reads slots has ended. The
/// cache, the bank and the stream outlive this object. Threads: as the cache.
/// A unit is one slot in every layer. Between calls the bank holds exactly the slots of all quotas. After `set_quotas`
/// with unequal quotas this is more than `capacity` slots a layer. `shrink` and `grow` set equal quotas.
template <class Cache, slot_bank<typename Cache::stream_type> Bank>
class expert_slots {
 public:
  using stream_type = typename Cache::stream_type;

  /// Allocates its bookkeeping.
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

  /// Allocates slot memory for the first time and gives every layer `units` slots. Pre: nothing is resident. Errors:
  /// as `grow`; the bank then holds nothing.
  status open(std::uint64_t units) noexcept {
    const auto done = resize(units);
    if (done == status::ok) last_ = asked_;
    return done;
  }

  /// Bytes of one unit: one slot in every layer.
  [[nodiscard]] std::uint64_t unit_bytes() const noexcept {
    std::uint64_t bytes = 0;
    for (const auto c : class_of_) bytes += bank_->slot_bytes(c);
    return bytes;
  }
  /// The smallest quota of any layer.
  [[nodiscard]] std::uint64_t capacity() const noexcept {
    auto least = pages().quota(layer_id{});
    for (const auto l : class_of_.ids()) least = std::min(least, pages().quota(l));
    return static_cast<std::uint64_t>(least);
  }
  /// Slots in each layer that one token needs. Residents beyond them can be fetched again.
  [[nodiscard]] std::uint64_t in_use() const noexcept {
    auto most = pages().least_quota(layer_id{});
    for (const auto l : class_of_.ids()) most = std::max(most, pages().least_quota(l));
    return static_cast<std::uint64_t>(most);
  }
  [[nodiscard]] std::uint64_t peak() const noexcept { return in_use(); }
  void reset_peak() noexcept {}
  /// True if no visit is open and no copy is outstanding.
  [[nodiscard]] bool drained() const noexcept { return pages().is_idle(); }

  status shrink(std::uint64_t units) noexcept {
    return units > capacity() ? status::invalid_argument : resize(units);
  }
  status grow(std::uint64_t units) noexcept {
    return units < capacity() ? status::invalid_argument : resize(units);
  }
  /// Sets one quota for each layer. All slots of a size class are interchangeable. Errors: invalid_argument, busy (a
  /// visit is open), exceeds_memory (memory was refused), or those of the cache's `drain`. Then only evictions may
  /// have happened. fill_failed if the stream failed; if a copy on the stream failed, no expert is resident.
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
    // If the second gather is refused, keep the larger memory: each resident needs its slot.
    if (gather() == status::ok) give_memory(held_);
    return done;
  }
  /// Restores the quotas before the last successful resize, equal or not. Errors: as set_quotas; exceeds_memory if the
  /// memory has been taken by another user.
  status undo() noexcept {
    asked_ = last_;
    return set_quotas(asked_.values());
  }

 private:
  using counts = std::vector<std::size_t>;  ///< slot counts by size class
  using layer_quotas = per_layer<std::int32_t>;

  [[nodiscard]] const auto& pages() const noexcept { return cache_->pager(); }
  [[nodiscard]] const pool_layout& layout() const noexcept { return pages().layout(); }
  [[nodiscard]] std::size_t layers() const noexcept { return layout().shape().layer_count(); }

  status resize(std::uint64_t units) noexcept {
    if (units > layout().shape().expert_count()) return status::invalid_argument;
    std::ranges::fill(asked_, static_cast<std::int32_t>(units));
    return set_quotas(asked_.values());
  }
  /// Checks the quotas and sums them by size class into `wanted_`.
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
  /// Allocates for the larger of held and wanted slots; all classes or none.
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
  /// Moves residents and their bytes to the first slots of their class. If the copy fails, no expert is resident.
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
  /// Shrinks layers first, so that growing layers can take their slots. If `stops`, stops at the first refusal and
  /// returns it.
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
  layer_quotas before_;  ///< quotas before the running change
  layer_quotas last_;    ///< quotas before the last change
  counts most_;          ///< slots of the layout, by class
  counts wanted_;        ///< slots that the requested quotas need, by class
  counts held_;          ///< slots that had memory before the change, by class
};

}  // namespace hotset
