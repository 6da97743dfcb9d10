// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Builds fills for tests.

#include "hotset/core/fill.hpp"

namespace hotset::suites {

/// Returns a copy of one expert into one slot.
inline fill fill_of(expert_key key, slot_id slot, ticket after = no_ticket) {
  return {.key = key, .slot = slot, .after = after};
}

}  // namespace hotset::suites
