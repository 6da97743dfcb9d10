// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Where each expert lives, in rows of int32 that an engine can upload unchanged, -1 for absent; and what each slot holds.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/core/fill.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/ids/per_key.hpp"

namespace hotset {

/// State of a slot.
enum class slot_state : std::uint8_t {
  free,      ///< holds nothing
  filling,   ///< a speculative copy is on its way
  resident,  ///< holds its key's bytes, or will before any reader that was told of it
};

/// All that is known of a slot.
struct slot_entry {
  expert_key key{};
  ticket last_reader = no_ticket;  ///< copies into the slot start after it
  std::uint32_t generation = 0;    ///< the reservation that what the slot holds came with
  std::uint32_t reservations = 0;  ///< made so far: a number is never given out again
  std::uint32_t pins = 0;          ///< open visits that read the slot
  slot_state state = slot_state::free;
  bool unused_prefetch = false;  ///< filled speculatively and not used since
  std::uint16_t pool = 0;        ///< that claims the slot; of a spare one, the last that did

  /// True of a resident slot without readers.
  [[nodiscard]] bool is_evictable() const noexcept {
    return state == slot_state::resident && pins == 0;
  }
};
static_assert(sizeof(slot_entry) == 32, "two to a cache line");

/// An open visit's hold on what a slot held at the time, and on nothing that comes into the slot afterwards.
struct slot_pin {
  slot_id slot = no_slot;
  std::uint32_t generation = 0;
};

/// A key is *placed* when a slot is its own, *published* when its bytes may be read.
/// Memory: 8 bytes per key. Complexity: every operation is O(1).
class slot_map {
 public:
  explicit slot_map(const geometry& shape)
      : placed_(shape, no_slot), published_(shape, no_slot), versions_(shape.layer_count(), 0) {}

  /// Slot of a key whose bytes are in place or on their way, or no_slot.
  [[nodiscard]] slot_id locate(expert_key key) const noexcept { return placed_[key]; }
  /// Shape: [experts]. With the slots of copies that are on their way.
  [[nodiscard]] std::span<const slot_id> located(layer_id layer) const noexcept {
    return placed_.row(layer);
  }
  /// Shape: [experts]. The slots that kernels may read.
  [[nodiscard]] std::span<const slot_id> row(layer_id layer) const noexcept {
    return published_.row(layer);
  }
  /// Changes when the row does; of a row that never changed it is 0.
  [[nodiscard]] std::uint64_t version(layer_id layer) const noexcept { return versions_[layer]; }
  void place(expert_key key, slot_id slot) noexcept { placed_[key] = slot; }
  void publish(expert_key key) noexcept {
    published_[key] = placed_[key];
    ++versions_[key.layer];
  }
  void place_and_publish(expert_key key, slot_id slot) noexcept {
    const auto at = placed_.place_of(key);  // of both
    placed_.values()[at] = published_.values()[at] = slot;
    ++versions_[key.layer];
  }
  void remove(expert_key key) noexcept { place_and_publish(key, no_slot); }
  /// To place and publish keys of one layer; then `changed` is called.
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
