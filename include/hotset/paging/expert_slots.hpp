// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The slots of a cache as a pool that gives memory back and takes more; quotas of layers change with it.
///
/// Rule: memory for the larger of both totals; layers that lose slots evict in policy order; those that gain take the
/// spare ones; residents are gathered in the first slots, their bytes copied after them; memory for the new total.
/// Source: wisp Appendix D (the expert-scratch resize), for any quotas. tinyserve's shrink left residents above the new
/// capacity: here a slot's memory goes only when nobody lives there.
/// Deviations: none.
/// Cost: O(slots), and a copy of each resident that lies too high. Allocates; for drained points.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/status.hpp"

namespace hotset::inline v0 {

/// Cache: a slot_cache over per-layer pools. Bank: as host_slot_bank, elastic. Both outlive it. Threads: as the cache.
/// A unit is a slot in every layer. Between calls the bank holds the slots of all quotas, and no others: after
/// `set_quotas` with unequal ones more than the capacity says. `shrink` and `grow` give every layer the same.
template <class Cache, class Bank>
class expert_slots {
 public:
  expert_slots(Cache& cache, Bank& bank) noexcept : cache_(&cache), bank_(&bank) {}

  /// Takes memory for the first time and gives every layer `units` slots. Pre: nothing is resident.
  /// Errors: as `grow`; then the bank holds nothing.
  status open(std::uint64_t units) {
    if (units > experts()) return status::invalid_argument;
    const std::vector<std::int32_t> quotas(layers(), static_cast<std::int32_t>(units));
    if (const auto bad = check(quotas); bad != status::ok) return bad;
    for (std::size_t l = 0; l < layers(); ++l)
      if (const auto bad = cache_->set_quota(id(l), quotas[l]); bad != status::ok) return bad;
    if (const auto bad = cache_->compact([](slot_id, slot_id) {}); bad != status::ok) return bad;
    return hold(slots_by_class());
  }

  /// Of one slot in every layer.
  [[nodiscard]] std::uint64_t unit_bytes() const noexcept {
    std::uint64_t bytes = 0;
    for (std::size_t l = 0; l < layers(); ++l) bytes += bank_->slot_bytes(class_of(l));
    return bytes;
  }
  /// The smallest quota of a layer.
  [[nodiscard]] std::uint64_t capacity() const noexcept {
    auto least = pages().quota(0);
    for (std::size_t l = 1; l < layers(); ++l) least = std::min(least, pages().quota(id(l)));
    return static_cast<std::uint64_t>(least);
  }
  /// What a token needs: residents beyond it can be fetched again.
  [[nodiscard]] std::uint64_t in_use() const noexcept {
    auto most = pages().least_quota(0);
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
  /// says; then nothing has changed but experts that were evicted on the way.
  status set_quotas(std::span<const std::int32_t> quotas) {
    if (const auto bad = check(quotas); bad != status::ok) return bad;
    if (const auto lost = cache_->drain(); lost != status::ok) return lost;
    if (!drained()) return status::busy;
    const auto before = slots_by_class();
    if (const auto refused = hold(larger(before, slots_by_class(quotas))); refused != status::ok)
      return refused;
    if (const auto refused = change_quotas(quotas); refused != status::ok) {
      (void)hold(before);
      return refused;
    }
    if (const auto lost = cache_->compact([this](slot_id from, slot_id to) { copy(from, to); });
        lost != status::ok)
      return lost;
    return hold(slots_by_class());
  }

 private:
  using counts = std::vector<std::size_t>;  ///< slots by size class

  [[nodiscard]] const auto& pages() const noexcept { return cache_->decisions(); }
  [[nodiscard]] const pool_layout& layout() const noexcept { return pages().layout(); }
  [[nodiscard]] std::size_t layers() const noexcept {
    return static_cast<std::size_t>(layout().shape().layers);
  }
  [[nodiscard]] std::uint64_t experts() const noexcept {
    return static_cast<std::uint64_t>(layout().shape().experts);
  }
  static layer_id id(std::size_t layer) noexcept { return static_cast<layer_id>(layer); }
  [[nodiscard]] std::size_t class_of(std::size_t layer) const noexcept {
    return static_cast<std::size_t>(layout().at(layout().pool_of_layer(id(layer))).size_class);
  }

  status resize(std::uint64_t units) noexcept {
    if (units > experts()) return status::invalid_argument;
    return set_quotas(std::vector<std::int32_t>(layers(), static_cast<std::int32_t>(units)));
  }
  [[nodiscard]] status check(std::span<const std::int32_t> quotas) const noexcept {
    if (quotas.size() != layers() || layout().pools() != layers()) return status::invalid_argument;
    for (std::size_t l = 0; l < layers(); ++l)
      if (quotas[l] < pages().least_quota(id(l)) || quotas[l] > layout().shape().experts)
        return status::invalid_argument;
    const auto wanted = slots_by_class(quotas);
    const auto most = slots_of_layout();
    for (std::size_t c = 0; c < wanted.size(); ++c)
      if (wanted[c] > most[c]) return status::exceeds_memory;
    return status::ok;
  }

  [[nodiscard]] counts slots_of_layout() const {
    counts out;
    for (std::size_t p = 0; p < layout().pools(); ++p) {
      const auto& pool = layout().at(static_cast<pool_id>(p));
      add(out, static_cast<std::size_t>(pool.size_class), pool.slots);
    }
    return out;
  }
  [[nodiscard]] counts slots_by_class(std::span<const std::int32_t> quotas) const {
    counts out;
    for (std::size_t l = 0; l < layers(); ++l) add(out, class_of(l), quotas[l]);
    return out;
  }
  [[nodiscard]] counts slots_by_class() const {
    counts out;
    for (std::size_t l = 0; l < layers(); ++l) add(out, class_of(l), pages().quota(id(l)));
    return out;
  }
  static void add(counts& to, std::size_t size_class, std::int32_t slots) {
    if (size_class >= to.size()) to.resize(size_class + 1, 0);
    to[size_class] += static_cast<std::size_t>(slots);
  }
  static counts larger(counts a, const counts& b) {
    for (std::size_t c = 0; c < a.size(); ++c) a[c] = std::max(a[c], b[c]);
    return a;
  }

  /// All classes, or none of them. What is given back goes first.
  status hold(const counts& slots) noexcept {
    counts before;
    for (std::size_t c = 0; c < slots.size(); ++c) before.push_back(bank_->held(c));
    for (std::size_t c = 0; c < slots.size(); ++c)
      if (slots[c] < before[c]) (void)bank_->hold(c, slots[c]);
    for (std::size_t c = 0; c < slots.size(); ++c) {
      if (slots[c] <= before[c] || bank_->hold(c, slots[c]) == status::ok) continue;
      for (std::size_t b = 0; b < slots.size(); ++b)
        if (before[b] < slots[b]) (void)bank_->hold(b, before[b]);
      return status::exceeds_memory;
    }
    return status::ok;
  }

  /// Those that lose slots first: the others take them.
  status change_quotas(std::span<const std::int32_t> quotas) noexcept {
    std::vector<std::int32_t> before;
    for (std::size_t l = 0; l < layers(); ++l) before.push_back(pages().quota(id(l)));
    for (const bool losing : {true, false})
      for (std::size_t l = 0; l < layers(); ++l) {
        if ((quotas[l] < before[l]) != losing) continue;
        const auto refused = cache_->set_quota(id(l), quotas[l]);
        if (refused == status::ok) continue;
        restore(before);
        return refused;
      }
    return status::ok;
  }
  void restore(std::span<const std::int32_t> quotas) noexcept {
    for (const bool losing : {true, false})
      for (std::size_t l = 0; l < layers(); ++l)
        if ((quotas[l] < pages().quota(id(l))) == losing) (void)cache_->set_quota(id(l), quotas[l]);
  }
  void copy(slot_id from, slot_id to) const noexcept {
    for (std::size_t t = 0; t < bank_->tensors(from); ++t) {
      const auto bytes = bank_->bytes(from, t);
      std::memcpy(bank_->bytes(to, t).data(), bytes.data(), bytes.size());
    }
  }

  Cache* cache_;
  Bank* bank_;
};

}  // namespace hotset::inline v0
