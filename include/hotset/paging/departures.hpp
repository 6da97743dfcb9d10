// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Who keeps bytes by key, and not by slot, hears of every key whose bytes nobody needs any more.

#include "hotset/core/fill.hpp"
#include "hotset/core/ids.hpp"

namespace hotset {

/// A copy of an expert that is given up: it was evicted, outdone by a better one, invalidated, trimmed or cut off by a quota, or its
/// transfer failed, was taken back, or was begun for a plan that was aborted.
struct departure {
  expert_key key{};
  precision_id precision{};
  slot_id slot = no_slot;
  ticket last_reader = no_ticket;  ///< when it has arrived nothing reads the bytes any more
};

/// Told once for each, in the call that gives it up; at an eviction by a visit, when that is committed. It must not call the pager.
struct departure_sink {
  void (*tell)(void* who, const departure& of) noexcept = nullptr;  ///< none: nobody listens
  void* who = nullptr;

  [[nodiscard]] bool listens() const noexcept { return tell != nullptr; }
  /// Pre: listens().
  void operator()(const departure& of) const noexcept { tell(who, of); }
};

}  // namespace hotset
