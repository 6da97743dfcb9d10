// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a pager must tell of a visit, written by hand for one policy and one pool: the second floor that hotset is compared with.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/core/fill.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/routing_view.hpp"

namespace benchmarks {

/// LRU or FIFO of all layers together, a dense list as in dense_list, with all that a pager's visit has beyond it: decided by `plan`
/// and made so by `commit`; copies as `hotset::fill`, each with its slot's generation and last reader; rows of slots for kernels, with
/// versions; why each expert missed; what was evicted; and the decision hash, by which it is seen to decide as the pager does.
/// It knows no pins, no prefetches, no bytes, no quotas and no undoing. Pre: as dense_list.
template <bool UsesMove>
class flat_pager {
 public:
  flat_pager(std::int32_t layers, std::int32_t experts, std::int32_t slots)
      : experts_(static_cast<std::uint32_t>(experts)),
        head_(static_cast<std::uint32_t>(slots)),
        seen_in_(experts_, 0),
        slot_of_(static_cast<std::size_t>(layers) * experts_, -1),
        row_(slot_of_),
        left_(slot_of_.size(), 0),
        used_(slot_of_.size(), 0),
        versions_(static_cast<std::size_t>(layers), 0),
        entries_(head_),
        previous_(head_ + 1),
        next_(head_ + 1),
        fills_(64) {
    for (std::uint32_t n = 0; n <= head_; ++n) {
      next_[n] = n == head_ ? 0 : n + 1;
      previous_[n] = n == 0 ? head_ : n - 1;
    }
  }

  std::span<const hotset::fill> plan(const hotset::routing_view& view) noexcept {
    const auto first = static_cast<std::uint32_t>(view.layer) * experts_;
    ++visit_;
    distinct_ = missing_ = 0;
    for (std::size_t i = 0; i < view.experts.size(); ++i) {
      const auto id = static_cast<std::uint32_t>(view.experts[i]);
      if (id >= experts_ || seen_in_[id] == visit_) continue;
      seen_in_[id] = visit_;
      ids_[distinct_] = id;
      slots_[distinct_] = slot_of_[first + id];
      missed_[missing_] = distinct_;
      missing_ += slots_[distinct_++] < 0;
    }
    auto oldest = next_[head_];
    for (std::uint32_t m = 0; m < missing_; ++m, oldest = next_[oldest]) {
      while (is_used(entries_[oldest].key, first)) oldest = next_[oldest];
      const auto key = first + ids_[missed_[m]];
      const bool collision = left_[key] == view.step + 1;
      collisions_ += collision;
      compulsory_ += !collision && used_[key] == 0;
      auto& entry = entries_[oldest];
      auto& f = fills_[m];
      f.key = {view.layer, hotset::expert_id{static_cast<std::int32_t>(ids_[missed_[m]])}};
      f.slot = hotset::slot_id{static_cast<std::int32_t>(oldest)};
      f.generation = ++entry.reservations;
      f.victim = entry.owner;
      f.after = entry.last_reader;
      if (entry.key >= 0) {
        slot_of_[static_cast<std::uint32_t>(entry.key)] = -1;
        row_[static_cast<std::uint32_t>(entry.key)] = -1;
        ++versions_[index_of(entry.owner.layer)];
      }
      slots_[missed_[m]] = static_cast<std::int32_t>(oldest);
    }
    return {fills_.data(), missing_};
  }
  void commit(const hotset::routing_view& view) noexcept {
    const auto first = static_cast<std::uint32_t>(view.layer) * experts_;
    ++visits_;
    accesses_ += distinct_;
    misses_ += missing_;
    for (std::uint32_t m = 0; m < missing_; ++m) {
      const auto& f = fills_[m];
      auto& entry = entries_[index_of(f.slot)];
      if (entry.key >= 0) {
        left_[static_cast<std::uint32_t>(entry.key)] = view.step + 1;
        ++evictions_;
      }
      const auto key = first + static_cast<std::uint32_t>(f.key.expert);
      entry.key = static_cast<std::int32_t>(key);
      entry.owner = f.key;
      entry.generation = f.generation;
      slot_of_[key] = row_[key] = number(f.slot);
      used_[key] = 1;
      mix(f);
    }
    versions_[index_of(view.layer)] += missing_;
    order();
  }
  [[nodiscard]] std::uint64_t hits() const noexcept { return accesses_ - misses_; }
  [[nodiscard]] std::uint64_t hash() const noexcept { return hash_; }

 private:
  struct entry {
    hotset::expert_key owner{};
    hotset::ticket last_reader = hotset::no_ticket;
    std::uint32_t generation = 0;
    std::uint32_t reservations = 0;
    std::int32_t key = -1;
  };
  /// By the visit that runs.
  [[nodiscard]] bool is_used(std::int32_t key, std::uint32_t first) const noexcept {
    const auto id = static_cast<std::uint32_t>(key) - first;
    return id < experts_ && seen_in_[id] == visit_;
  }
  void mix(const hotset::fill& f) noexcept {
    hash_ ^= static_cast<std::uint64_t>(static_cast<std::uint32_t>(f.slot)) << 40U ^
             static_cast<std::uint64_t>(static_cast<std::uint32_t>(f.key.layer)) << 20U ^
             static_cast<std::uint32_t>(f.key.expert);
    hash_ *= 0x9E3779B97F4A7C15ULL;
    hash_ ^= hash_ >> 29U;
  }
  void order() noexcept {
    const auto moved = UsesMove ? distinct_ : missing_;
    const auto node = [this](std::uint32_t i) {
      return static_cast<std::uint32_t>(UsesMove ? slots_[i] : slots_[missed_[i]]);
    };
    for (std::uint32_t i = 0; i < moved; ++i) {
      next_[previous_[node(i)]] = next_[node(i)];
      previous_[next_[node(i)]] = previous_[node(i)];
    }
    auto last = previous_[head_];
    for (std::uint32_t i = 0; i < moved; ++i) {
      previous_[node(i)] = last;
      next_[last] = node(i);
      last = node(i);
    }
    next_[last] = head_;
    previous_[head_] = last;
  }

  std::uint32_t experts_;
  std::uint32_t head_;
  std::uint32_t visit_ = 0;
  std::vector<std::uint32_t> seen_in_;       ///< [expert]
  std::vector<std::int32_t> slot_of_, row_;  ///< [key]
  std::vector<std::uint64_t> left_;          ///< [key] step + 1 of its last eviction
  std::vector<std::uint8_t> used_;           ///< [key]
  std::vector<std::uint64_t> versions_;      ///< [layer]
  std::vector<entry> entries_;               ///< [slot]
  std::vector<std::uint32_t> previous_, next_;
  std::vector<hotset::fill> fills_;
  std::uint32_t ids_[64] = {}, missed_[64] = {};
  std::int32_t slots_[64] = {};
  std::uint32_t distinct_ = 0, missing_ = 0;
  std::uint64_t visits_ = 0, accesses_ = 0, misses_ = 0, collisions_ = 0, compulsory_ = 0,
                evictions_ = 0, hash_ = 0;
};
using flat_pager_lru = flat_pager<true>;
using flat_pager_fifo = flat_pager<false>;

}  // namespace benchmarks
