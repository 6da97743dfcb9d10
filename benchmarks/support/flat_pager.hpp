// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A hand-written pager for one policy and one pool, with a pager's reports: the second floor that hotset is compared
/// with.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/core/fill.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/routing_view.hpp"
#include "support/flat_orders.hpp"
#include "support/flat_visit.hpp"

namespace benchmarks {

/// The experts of all layers together, with everything that a pager's visit has beyond a bare cache: decided by
/// `plan` and committed by `commit`; copies as `hotset::fill`, each with its slot's generation and last reader; rows
/// of slots for kernels, with versions; the reason of each miss; victims; and the decision hash, which proves that it
/// decides as the pager does. `Order` selects the victims (flat_orders.hpp).
/// It has no pins, prefetches, bytes, quotas or undo. Pre: those of dense_list.
template <class Order>
class flat_pager {
 public:
  using config = typename Order::config;

  flat_pager(std::int32_t layers, std::int32_t experts, std::int32_t slots)
      : flat_pager({.layers = layers, .experts = experts, .top_k = 1}, slots, config{}) {}
  flat_pager(const hotset::geometry& shape, std::int32_t slots, const config& options)
      : experts_(static_cast<std::uint32_t>(shape.experts)),
        size_(static_cast<std::uint32_t>(slots)),
        seen_in_(experts_, 0),
        slot_of_(shape.keys(), -1),
        row_(slot_of_),
        left_(slot_of_.size(), 0),
        used_(slot_of_.size(), 0),
        versions_(shape.layer_count(), 0),
        entries_(size_),
        key_of_(size_, -1),
        fills_(64),
        order_(shape, slots, options) {}

  std::span<const hotset::fill> plan(const hotset::routing_view& view) noexcept {
    const auto first = static_cast<std::uint32_t>(view.layer) * experts_;
    held_ += fresh_;
    ++visit_;
    distinct_ = missing_ = 0;
    for (std::size_t i = 0; i < view.experts.size(); ++i) {
      const auto id = static_cast<std::uint32_t>(view.experts[i]);
      if (id >= experts_ || seen_in_[id] == visit_) continue;
      seen_in_[id] = visit_;
      const auto slot = slot_of_[first + id];
      ids_[distinct_] = id;
      slots_[distinct_] = slot;
      missed_[missing_] = distinct_++;
      missing_ += slot < 0;
    }
    std::uint32_t m = 0;
    const auto give = [&](std::uint32_t slot) {
      const auto key = first + ids_[missed_[m]];
      const bool collision = left_[key] == view.step + 1;
      collisions_ += collision;
      compulsory_ += !collision && used_[key] == 0;
      auto& at = entries_[slot];
      auto& f = fills_[m];
      f.key = {view.layer, hotset::expert_id{static_cast<std::int32_t>(ids_[missed_[m]])}};
      f.slot = hotset::slot_id{static_cast<std::int32_t>(slot)};
      f.generation = ++at.reservations;
      f.victim = at.owner;
      f.after = at.last_reader;
      if (const auto old = key_of_[slot]; old >= 0) {
        slot_of_[static_cast<std::uint32_t>(old)] = -1;
        row_[static_cast<std::uint32_t>(old)] = -1;
        ++versions_[index_of(at.owner.layer)];
      }
      slots_[missed_[m]] = static_cast<std::int32_t>(slot);
      ++m;
    };
    fresh_ = std::min(missing_, size_ - held_);
    while (m < fresh_) give(held_ + m);
    order_.choose(visit(view), missing_ - fresh_, give);
    return {fills_.data(), missing_};
  }
  void commit(const hotset::routing_view& view) noexcept {
    const auto first = static_cast<std::uint32_t>(view.layer) * experts_;
    ++visits_;
    accesses_ += distinct_;
    misses_ += missing_;
    for (std::uint32_t m = 0; m < missing_; ++m) {
      const auto& f = fills_[m];
      auto& at = entries_[index_of(f.slot)];
      auto& held = key_of_[index_of(f.slot)];
      if (held >= 0) {
        left_[static_cast<std::uint32_t>(held)] = view.step + 1;
        ++evictions_;
      }
      const auto key = first + static_cast<std::uint32_t>(f.key.expert);
      held = static_cast<std::int32_t>(key);
      at.owner = f.key;
      at.generation = f.generation;
      slot_of_[key] = row_[key] = number(f.slot);
      used_[key] = 1;
      mix(f);
    }
    versions_[index_of(view.layer)] += missing_;
    order_.commit(visit(view));
  }
  [[nodiscard]] std::uint64_t hits() const noexcept { return accesses_ - misses_; }
  [[nodiscard]] std::uint64_t hash() const noexcept { return hash_; }

 private:
  struct slot_entry {
    hotset::expert_key owner{};
    hotset::ticket last_reader = hotset::no_ticket;
    std::uint32_t generation = 0;
    std::uint32_t reservations = 0;
  };
  [[nodiscard]] flat_visit visit(const hotset::routing_view& view) const noexcept {
    const auto layer = static_cast<std::uint32_t>(view.layer);
    return {.view = view,
            .layer = layer,
            .first_key = layer * experts_,
            .ids = std::span(ids_).first(distinct_),
            .slots = std::span(slots_).first(distinct_),
            .missed = std::span(missed_).first(missing_),
            .held = held_,
            .fresh = fresh_,
            .key_of = key_of_.data(),
            .seen_in = seen_in_.data(),
            .experts = experts_,
            .number = visit_};
  }
  void mix(const hotset::fill& f) noexcept {
    hash_ ^= static_cast<std::uint64_t>(static_cast<std::uint32_t>(f.slot)) << 40U ^
             static_cast<std::uint64_t>(static_cast<std::uint32_t>(f.key.layer)) << 20U ^
             static_cast<std::uint32_t>(f.key.expert);
    hash_ *= 0x9E3779B97F4A7C15ULL;
    hash_ ^= hash_ >> 29U;
  }

  std::uint32_t experts_;
  std::uint32_t size_;      ///< slots
  std::uint32_t held_ = 0;  ///< number of slots in use before the visit; they are the first ones
  std::uint32_t visit_ = 0;
  std::vector<std::uint32_t> seen_in_;       ///< [expert]
  std::vector<std::int32_t> slot_of_, row_;  ///< [key]
  std::vector<std::uint64_t> left_;          ///< [key] step + 1 of its last eviction
  std::vector<std::uint8_t> used_;           ///< [key]
  std::vector<std::uint64_t> versions_;      ///< [layer]
  std::vector<slot_entry> entries_;          ///< [slot]
  std::vector<std::int32_t> key_of_;         ///< [slot]
  std::vector<hotset::fill> fills_;
  std::uint32_t ids_[64] = {}, missed_[64] = {};
  std::int32_t slots_[64] = {};
  std::uint32_t distinct_ = 0, missing_ = 0, fresh_ = 0;
  std::uint64_t visits_ = 0, accesses_ = 0, misses_ = 0, collisions_ = 0, compulsory_ = 0,
                evictions_ = 0, hash_ = 0;
  Order order_;
};
using flat_pager_lru = flat_pager<orders::lru>;
using flat_pager_fifo = flat_pager<orders::fifo>;

}  // namespace benchmarks
