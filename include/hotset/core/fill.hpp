// SPDX-License-Identifier: Apache-2.0
#pragma once
/// One copy of one expert into one slot, and the ticket of a submitted batch of copies.

#include <cstdint>

#include "hotset/core/ids.hpp"

namespace hotset {

/// Identifies a submitted batch of copies, or a recorded reader, in a backend. 0: nothing to wait for.
using ticket = std::uint64_t;
/// The ticket that needs no wait.
inline constexpr ticket no_ticket = 0;

/// Priority of a batch of copies.
enum class urgency : std::uint8_t {
  now,   ///< a visit waits for it
  soon,  ///< speculative; runs after copies that are needed `now`
};

/// Progress of a submitted batch.
enum class transfer_state : std::uint8_t {
  pending,    ///< at least one tensor of one fill has not arrived
  arrived,    ///< every byte is in place
  failed,     ///< at least one copy will never arrive
  cancelled,  ///< cancelled before any byte moved
};

/// One copy that the pager has planned and a backend performs. It is complete when all tensors of the expert have
/// arrived.
struct fill {
  expert_key key{};
  slot_id slot = no_slot;
  std::uint32_t generation = 0;  ///< the slot's generation at this reservation
  /// The expert whose bytes it overwrites; no_key if the slot was free.
  expert_key victim = no_key;
  precision_id precision{};
  bool speculative = false;
  /// The slot's last reader: the copy does not start before it has ended.
  ticket after = no_ticket;
};

}  // namespace hotset
