// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Maps each expert to its slot, in int32 rows that an engine can upload unchanged (-1: absent); and defines the state
/// of a slot.

#include <cstddef>
#include <cstdint>
#include <span>

#include "hotset/core/fill.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/ids/per_key.hpp"

namespace hotset {

/// State of a slot.
enum class slot_state : std::uint8_t {
  free,      ///< holds nothing
  filling,   ///< a speculative copy is outstanding
  resident,  ///< holds its key's bytes, or will before any permitted reader
};

/// State of one slot.
struct slot_entry {
  expert_key key{};
  ticket last_reader = no_ticket;  ///< copies into the slot start after this ticket
  std::uint32_t generation = 0;    ///< generation of the reservation of the current contents
  std::uint32_t reservations = 0;  ///< number of reservations so far; generations are never reused
  std::uint32_t pins = 0;          ///< open visits that read the slot
  slot_state state = slot_state::free;
  bool unused_prefetch = false;  ///< filled speculatively and not used since
  std::uint16_t pool = 0;  ///< pool with the slot in its quota; of a spare slot, the last such pool

  /// True if the slot is resident and has no readers.
  [[nodiscard]] bool is_evictable() const noexcept {
    return state == slot_state::resident && pins == 0;
  }
};
static_assert(sizeof(slot_entry) == 32, "two to a cache line");

/// An open visit's protection of a slot's contents. It does not cover contents that are copied into the slot later.
struct slot_pin {
  slot_id slot = no_slot;
  std::uint32_t generation = 0;
};

/// A key is *placed* if a slot is reserved for it, and *published* if its bytes may be read. Memory: 8 bytes per key.
/// Complexity: every operation is O(1).
class slot_map {
 public:
  explicit slot_map(const geometry& shape)
      : placed_(shape, no_slot), published_(shape, no_slot), versions_(shape.layer_count(), 0) {}

  /// Slot of a key whose bytes are in place or outstanding, or no_slot.
  [[nodiscard]] slot_id locate(expert_key key) const noexcept { return placed_[key]; }
  /// Shape: [experts]. Includes slots of outstanding copies.
  [[nodiscard]] std::span<const slot_id> located(layer_id layer) const noexcept {
    return placed_.row(layer);
  }
  /// Shape: [experts]. Slots that kernels may read.
  [[nodiscard]] std::span<const slot_id> row(layer_id layer) const noexcept {
    return published_.row(layer);
  }
  /// Version of the row; changes with the row, and 0 if the row never changed.
  [[nodiscard]] std::uint64_t version(layer_id layer) const noexcept { return versions_[layer]; }
  void place(expert_key key, slot_id slot) noexcept { placed_[key] = slot; }
  void publish(expert_key key) noexcept {
    published_[key] = placed_[key];
    ++versions_[key.layer];
  }
  void place_and_publish(expert_key key, slot_id slot) noexcept {
    const auto at = placed_.place_of(key);  // both arrays have this layout
    placed_.values()[at] = published_.values()[at] = slot;
    ++versions_[key.layer];
  }
  void remove(expert_key key) noexcept { place_and_publish(key, no_slot); }
  /// Row pointers to place and publish keys of one layer. Call `changed` afterwards.
  struct layer_rows {
    slot_id* placed;
    slot_id* published;
  };
  [[nodiscard]] layer_rows rows(layer_id layer) noexcept {
    return {placed_.row(layer).data(), published_.row(layer).data()};
  }
  void changed(layer_id layer, std::size_t times) noexcept { versions_[layer] += times; }

 private:
  per_key<slot_id> placed_;
  per_key<slot_id> published_;
  per_layer<std::uint64_t> versions_;  ///< [layers]
};

}  // namespace hotset
