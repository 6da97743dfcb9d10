// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What each slot holds and who still uses it.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "hotset/core/fill.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/platform/assert.hpp"

namespace hotset {

/// What a slot holds.
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
};
static_assert(sizeof(slot_entry) == 32, "two to a cache line");

/// An open visit's hold on what a slot held at the time, and on nothing that comes into the slot afterwards.
struct slot_pin {
  slot_id slot = no_slot;
  std::uint32_t generation = 0;
};

/// One entry per slot. Complexity: O(1).
class slot_table {
 public:
  slot_table() = default;
  explicit slot_table(std::size_t slots) : entries_(slots) {}

  [[nodiscard]] std::size_t slots() const noexcept { return entries_.size(); }
  [[nodiscard]] slot_entry& operator[](slot_id slot) noexcept {
    HOTSET_ASSERT(slot >= 0 && index_of(slot) < entries_.size());
    return entries_[slot];
  }
  [[nodiscard]] const slot_entry& operator[](slot_id slot) const noexcept {
    HOTSET_ASSERT(slot >= 0 && index_of(slot) < entries_.size());
    return entries_[slot];
  }
  /// A resident slot that nobody reads may be evicted.
  [[nodiscard]] bool evictable(slot_id slot) const noexcept { return evictable((*this)[slot]); }
  [[nodiscard]] static bool evictable(const slot_entry& entry) noexcept {
    return entry.state == slot_state::resident && entry.pins == 0;
  }

 private:
  per_slot<slot_entry> entries_;
};

}  // namespace hotset
