// SPDX-License-Identifier: Apache-2.0
#pragma once
/// One decided copy of one expert into one slot, and the name of a submitted batch of them.

#include <cstdint>

#include "hotset/core/ids.hpp"

namespace hotset {

/// Names a point in a backend's work: a submitted batch of copies, or a recorded reader. 0: nothing to wait for.
using ticket = std::uint64_t;
/// There is nothing to wait for.
inline constexpr ticket no_ticket = 0;

/// How soon a batch of copies is needed.
enum class urgency : std::uint8_t {
  now,   ///< a visit waits for it
  soon,  ///< speculative; gives way to `now`
};

/// Where a submitted batch stands.
enum class transfer_state : std::uint8_t {
  pending,    ///< not all tensors of all its fills have arrived
  arrived,    ///< every byte is in place
  failed,     ///< at least one copy will never arrive
  cancelled,  ///< taken back before any byte moved
};

/// Planned by the pager, moved by a backend. A fill is whole only when all tensors of the expert have arrived.
struct fill {
  expert_key key{};
  slot_id slot = no_slot;
  std::uint32_t generation = 0;  ///< of the slot, as of this reservation
  expert_key victim = no_key;    ///< whose bytes it overwrites; no_key for a free slot
  precision_id precision{};
  bool speculative = false;
  ticket after = no_ticket;  ///< the slot's last reader: the copy starts no earlier
};

}  // namespace hotset
