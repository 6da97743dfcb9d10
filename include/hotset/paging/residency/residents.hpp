// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Records the expert of each slot. It makes no decisions and sends no notifications.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "hotset/core/fill.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/slot_mask.hpp"
#include "hotset/core/status.hpp"
#include "hotset/paging/residency/slot_map.hpp"

namespace hotset {

/// A slot stores its pool, and a pool its precision, so nothing here depends on their number. Complexity: O(1) unless
/// stated. No allocation after construction.
class residents {
 public:
  /// State of a pool.
  struct pool_state {
    std::int32_t capacity = 0;  ///< slots of its quota
    precision_id precision{};
    std::uint32_t first_bytes = 0;  ///< offset of its precision in bytes_
    std::size_t evictable = 0;
    std::size_t filling = 0;
    std::uint64_t resident_bytes = 0;
  };

  explicit residents(pool_layout layout)
      : layout_(std::move(layout)),
        map_(shape()),
        table_(layout_.slots()),
        evictable_(layout_.slots()),
        bytes_(shape().layer_count() * layout_.precisions()),
        pools_(layout_.pools()),
        free_(layout_.pools()) {
    for (const auto l : each<layer_id>(shape().layers))
      for (std::size_t p = 0; p < layout_.precisions(); ++p)
        bytes_[p * shape().layer_count() + index_of(l)] =
            shape().bytes_of(l, static_cast<precision_id>(p));
    for (const auto s : table_.ids())
      at(s).pool = static_cast<std::uint16_t>(layout_.pool_of_slot(s));
    for (const auto p : pools_.ids()) {
      const auto& pool = layout_.at(p);
      pools_[p].capacity = pool.slots;
      pools_[p].precision = pool.precision;
      pools_[p].first_bytes = number(pool.precision) * static_cast<std::uint32_t>(shape().layers);
      free_[p].reserve(layout_.most_slots(p));
      for (auto left = pool.slots; left-- > 0;) free_[p].push_back(pool.first_slot + left);
      spare_.resize(std::max(spare_.size(), index_of(pool.size_class) + 1));
    }
    for (auto& spare : spare_) spare.reserve(layout_.slots());
    of_class_.reserve(layout_.slots());
    masked_.reserve(layout_.slots());
  }

  [[nodiscard]] const pool_layout& layout() const noexcept { return layout_; }
  [[nodiscard]] const geometry& shape() const noexcept { return layout_.shape(); }
  [[nodiscard]] std::size_t slots() const noexcept { return table_.size(); }

  // --- contents of slots

  [[nodiscard]] const slot_entry& operator[](slot_id slot) const noexcept { return at(slot); }
  /// Maps each expert to its slot.
  [[nodiscard]] const slot_map& map() const noexcept { return map_; }
  [[nodiscard]] pool_id pool_of(slot_id slot) const noexcept {
    return static_cast<pool_id>(at(slot).pool);
  }
  [[nodiscard]] precision_id precision_of(slot_id slot) const noexcept {
    return pool_of(at(slot)).precision;
  }
  /// Bytes of the expert in the slot.
  [[nodiscard]] std::uint64_t bytes_in(slot_id slot) const noexcept {
    const auto& entry = at(slot);
    return bytes_of(entry.key.layer, pool_of(entry));
  }
  [[nodiscard]] const pool_state& pool(pool_id p) const noexcept { return pools_[p]; }
  [[nodiscard]] std::size_t free_count(pool_id p) const noexcept { return free_[p].size(); }
  /// Slots that may be evicted: resident, not pinned, and not masked.
  [[nodiscard]] const slot_mask& evictable() const noexcept { return evictable_; }
  /// True if the slot is resident and no open visit reads it, masked or not.
  [[nodiscard]] bool is_evictable(slot_id slot) const noexcept { return at(slot).is_evictable(); }
  /// Number of slots that wait for a copy.
  [[nodiscard]] std::size_t filling() const noexcept { return filling_; }
  /// Number of slots that were filled speculatively and not used since.
  [[nodiscard]] std::size_t unused_prefetches() const noexcept { return unused_prefetches_; }
  /// A running hash of every fill and eviction.
  [[nodiscard]] std::uint64_t hash() const noexcept { return hash_; }
  /// Complexity: O(slots).
  [[nodiscard]] bool is_any_pinned() const noexcept {
    return std::ranges::any_of(table_, [](const slot_entry& entry) { return entry.pins != 0; });
  }

  // --- masks

  /// Protects slots from eviction during its lifetime. Masks must end in reverse order. Meanwhile its slots must not
  /// be pinned, unpinned or refilled.
  class mask {
   public:
    explicit mask(residents& of) noexcept : of_(of), first_(of.masked_.size()) {}
    mask(residents& of, std::span<const slot_id> slots) noexcept : mask(of) {
      for (const auto slot : slots)
        if (slot != no_slot) add(slot);
    }
    mask(const mask&) = delete;
    mask& operator=(const mask&) = delete;
    ~mask() {
      for (std::size_t i = first_; i < of_.masked_.size(); ++i) of_.evictable_.set(of_.masked_[i]);
      of_.masked_.resize(first_);
    }
    /// Does nothing if the slot is not evictable.
    void add(slot_id slot) noexcept {
      if (!of_.evictable_.test(slot)) return;
      of_.evictable_.reset(slot);
      of_.masked_.push_back(slot);
    }
    /// The masked slots that were evictable before.
    [[nodiscard]] std::span<const slot_id> slots() const noexcept {
      return std::span(of_.masked_).subspan(first_);
    }

   private:
    residents& of_;
    std::size_t first_;
  };

  // --- states of one copy: reserved, then held or awaited, or returned

  /// Reserves a free slot of the pool. Pre: the pool has a free slot.
  fill reserve_free(expert_key key, pool_id pool) noexcept {
    return reserve(key, take(pool), no_key);
  }
  /// Reserves the slot of a victim and removes the victim's key from the map.
  fill reserve_victim(expert_key key, slot_id slot) noexcept {
    const auto victim = at(slot).key;
    map_.remove(victim);
    return reserve(key, slot, victim);
  }
  /// Undoes a reservation and restores the victim.
  void give_back(const fill& f) noexcept {
    if (f.victim == no_key)
      give_back(f.slot);
    else
      map_.place_and_publish(f.victim, f.slot);
  }
  /// Undoes a reservation whose bytes may have moved. Pre: the loss of the old key was reported and the slot vacated.
  void spoil(const fill& f) noexcept { at(f.slot).generation = f.generation; }

  /// Assigns the fills' keys, all of one layer, to their slots. Readers must wait for the copies. Calls give_up(f,
  /// bytes) before each assignment, to end the old key and another copy of the new key.
  template <class GiveUp>
  void hold(layer_id layer, std::span<const fill> fills, GiveUp give_up) noexcept {
    const auto row = map_.rows(layer);
    for (const auto& f : fills) {
      auto& entry = at(f.slot);
      auto& pool = pool_of(entry);
      const auto bytes = bytes_of(layer, pool);
      give_up(f, bytes);
      pool.resident_bytes += bytes;
      if (f.victim != no_key) pool.resident_bytes -= bytes_of(f.victim.layer, pool);
      if (!entry.is_evictable()) [[unlikely]]
        become_evictable(f.slot, pool);
      entry.key = f.key;
      entry.generation = f.generation;
      row.placed[index_of(f.key.expert)] = row.published[index_of(f.key.expert)] = f.slot;
      mix(f.slot, {layer, f.key.expert});
    }
    map_.changed(layer, fills.size());
  }
  /// Assigns the fill's key to a vacant slot. Readers see it after `arrive`.
  void await(const fill& f) noexcept {
    auto& entry = at(f.slot);
    auto& pool = pool_of(entry);
    entry.key = f.key;
    entry.generation = f.generation;
    entry.pins = 0;  // the new contents have no reader yet
    entry.state = slot_state::filling;
    entry.unused_prefetch = f.speculative;
    unused_prefetches_ += f.speculative ? 1U : 0U;
    pool.resident_bytes += bytes_of(f.key.layer, pool);
    map_.place(f.key, f.slot);
    ++pool.filling;
    ++filling_;
    mix(f.slot, f.key);
  }
  /// True while the slot waits for the copy of this reservation.
  [[nodiscard]] bool awaits(slot_id slot, std::uint32_t generation) const noexcept {
    const auto& entry = at(slot);
    return entry.generation == generation && entry.state == slot_state::filling;
  }
  /// Publishes the key of a slot whose copy has arrived. Pre: the slot is filling.
  void arrive(slot_id slot) noexcept {
    auto& entry = at(slot);
    auto& pool = pool_of(entry);
    entry.state = slot_state::resident;
    --pool.filling;
    --filling_;
    map_.publish(entry.key);
    refresh_evictable(slot, pool);
  }
  /// Marks a speculative copy as used or lost. Returns false if the slot held none, or one that was used before.
  bool settle_prefetch(slot_id slot) noexcept {
    auto& entry = at(slot);
    if (!entry.unused_prefetch) return false;
    entry.unused_prefetch = false;
    --unused_prefetches_;
    return true;
  }
  /// Removes the slot's key. Does not return the slot to its pool.
  void vacate(slot_id slot) noexcept {
    auto& entry = at(slot);
    auto& pool = pool_of(entry);
    if (map_.locate(entry.key) == slot) map_.remove(entry.key);
    pool.resident_bytes -= bytes_of(entry.key.layer, pool);
    if (entry.state == slot_state::filling) {
      --pool.filling;
      --filling_;
    }
    entry.state = slot_state::free;
    refresh_evictable(slot, pool);
    mix(slot, no_key);
  }
  void give_back(slot_id slot) noexcept { free_[pool_of(slot)].push_back(slot); }
  /// Returns a slot to its pool, to be taken after all other free slots. Complexity: O(free slots of the pool).
  void give_back_last(slot_id slot) noexcept {
    auto& free = free_[pool_of(slot)];
    free.insert(free.begin(), slot);
  }
  /// Marks the victim of a reserved slot as lost because its copy has failed. It will not be restored.
  void lose_victim(slot_id slot) noexcept {
    auto& entry = at(slot);
    entry.state = slot_state::free;
    refresh_evictable(slot, pool_of(entry));
  }

  // --- readers

  slot_pin pin(slot_id slot) noexcept {
    auto& entry = at(slot);
    ++entry.pins;
    refresh_evictable(slot, pool_of(entry));
    return {slot, entry.generation};
  }
  /// Ignored if the slot has a new key, because then the pinned copy had failed.
  void unpin(slot_pin pinned, ticket reader) noexcept {
    auto& entry = at(pinned.slot);
    if (entry.generation != pinned.generation) return;
    if (reader != no_ticket) entry.last_reader = reader;
    if (entry.pins == 0) return;
    --entry.pins;
    refresh_evictable(pinned.slot, pool_of(entry));
  }
  void drop_pins(slot_id slot) noexcept { at(slot).pins = 0; }
  void wait_before_fill(slot_id slot, ticket point) noexcept { at(slot).last_reader = point; }

  // --- quotas

  /// Moves `count` free slots of the pool to the spare slots of its size class. Pre: the pool has that many free
  /// slots.
  void give_up(pool_id p, std::size_t count) noexcept {
    auto& spare = spare_of(p);
    for (std::size_t i = 0; i < count; ++i) spare.push_back(take(p));
    pools_[p].capacity -= static_cast<std::int32_t>(count);
  }
  /// Moves spare slots to the pool until it has `slots`. Errors: exceeds_memory (too few spare slots).
  status claim(pool_id p, std::int32_t slots) noexcept {
    auto& pool = pools_[p];
    auto& spare = spare_of(p);
    if (static_cast<std::size_t>(slots - pool.capacity) > spare.size())
      return status::exceeds_memory;
    for (; pool.capacity < slots; ++pool.capacity) {
      at(spare.back()).pool = static_cast<std::uint16_t>(p);
      give_back(spare.back());
      spare.pop_back();
    }
    return status::ok;
  }

  /// Makes the last slots of each size class spare; the lowest of them is claimed first. Moves keys from there to the
  /// class's first slots and calls moved(from, to) for each. Pre: no copy is outstanding. Complexity: O(slots * size
  /// classes).
  template <class Moved>
  void gather_spare(Moved moved) {
    for (const auto size_class : spare_.ids()) {
      of_class_.clear();
      for (const auto s : table_.ids())
        if (layout_.at(layout_.pool_of_slot(s)).size_class == size_class) of_class_.push_back(s);
      auto& spare = spare_[size_class];
      std::ranges::sort(spare);
      auto vacant = spare.begin();
      const auto last = of_class_.end() - static_cast<std::ptrdiff_t>(spare.size());
      for (auto s = last; s != of_class_.end(); ++s)
        if (!std::ranges::binary_search(spare, *s)) exchange(*s, *vacant++, moved);
      std::reverse_copy(last, of_class_.end(), spare.begin());
    }
  }

 private:
  [[nodiscard]] slot_entry& at(slot_id slot) noexcept {
    HOTSET_ASSERT(slot >= 0 && index_of(slot) < table_.size());
    return table_[slot];
  }
  [[nodiscard]] const slot_entry& at(slot_id slot) const noexcept {
    HOTSET_ASSERT(slot >= 0 && index_of(slot) < table_.size());
    return table_[slot];
  }
  [[nodiscard]] pool_state& pool_of(const slot_entry& entry) noexcept {
    return pools_[static_cast<pool_id>(entry.pool)];
  }
  [[nodiscard]] const pool_state& pool_of(const slot_entry& entry) const noexcept {
    return pools_[static_cast<pool_id>(entry.pool)];
  }
  [[nodiscard]] std::uint64_t bytes_of(layer_id layer, const pool_state& pool) const noexcept {
    return bytes_[pool.first_bytes + index_of(layer)];
  }
  /// Gives each reservation of a slot a unique generation.
  fill reserve(expert_key key, slot_id slot, expert_key victim) noexcept {
    auto& entry = at(slot);
    return {.key = key,
            .slot = slot,
            .generation = ++entry.reservations,
            .victim = victim,
            .precision = pool_of(entry).precision,
            .speculative = false,
            .after = entry.last_reader};
  }
  void refresh_evictable(slot_id slot, pool_state& pool) noexcept {
    const bool now = at(slot).is_evictable();
    if (now == evictable_.test(slot)) return;
    evictable_.assign(slot, now);
    now ? ++pool.evictable : --pool.evictable;
  }
  /// Makes a slot resident and unpinned if it was free, or was pinned or failed after its reservation.
  [[gnu::noinline]] void become_evictable(slot_id slot, pool_state& pool) noexcept {
    auto& entry = at(slot);
    entry.pins = 0;
    entry.state = slot_state::resident;
    refresh_evictable(slot, pool);
  }
  void mix(slot_id slot, expert_key key) noexcept {
    const auto word = (static_cast<std::uint64_t>(static_cast<std::uint32_t>(slot)) << 40U) ^
                      (static_cast<std::uint64_t>(static_cast<std::uint32_t>(key.layer)) << 20U) ^
                      static_cast<std::uint64_t>(static_cast<std::uint32_t>(key.expert));
    const auto mixed = (hash_ ^ word) * 0x9E3779B97F4A7C15ULL;
    hash_ = mixed ^ mixed >> 29U;
  }

  slot_id take(pool_id pool) noexcept {
    HOTSET_ASSERT(!free_[pool].empty());
    const auto slot = free_[pool].back();
    free_[pool].pop_back();
    return slot;
  }
  [[nodiscard]] std::vector<slot_id>& spare_of(pool_id p) noexcept {
    return spare_[layout_.at(p).size_class];
  }
  /// Replaces a slot of a pool by a spare slot of the same class.
  template <class Moved>
  void exchange(slot_id from, slot_id to, Moved& moved) {
    auto& before = at(from);
    auto& now = at(to);
    now.pool = before.pool;
    if (before.state == slot_state::free) {
      std::ranges::replace(free_[pool_of(from)], from, to);
      return;
    }
    auto& pool = pool_of(before);
    now.key = before.key;
    now.state = slot_state::resident;
    now.unused_prefetch = std::exchange(before.unused_prefetch, false);
    now.generation = ++now.reservations;
    now.last_reader = before.last_reader;
    before.state = slot_state::free;
    refresh_evictable(from, pool);
    refresh_evictable(to, pool);
    map_.place_and_publish(now.key, to);
    mix(to, now.key);
    moved(from, to);
  }

  pool_layout layout_;
  slot_map map_;
  per_slot<slot_entry> table_;
  slot_mask evictable_;
  std::vector<std::uint64_t> bytes_;  ///< [precisions][layers] of one expert
  per_pool<pool_state> pools_;
  per_pool<std::vector<slot_id>> free_;         ///< by pool; the last element is taken next
  per_size_class<std::vector<slot_id>> spare_;  ///< by size class: slots without a quota
  std::vector<slot_id> of_class_;               ///< scratch
  std::vector<slot_id> masked_;                 ///< slots of all masks, oldest mask first
  std::size_t filling_ = 0;
  std::size_t unused_prefetches_ = 0;
  std::uint64_t hash_ = 0;
};

}  // namespace hotset
