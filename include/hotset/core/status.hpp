// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The result of a hot-path call: a small code, never an exception and never an allocation.

#include <cstdint>
#include <string_view>

#include "hotset/version.hpp"

namespace hotset {

// clang-format off: version 14 takes an attributed enum for a function
/// The result of a call on the way of a visit; no such call throws.
enum class [[nodiscard]] status : std::uint8_t{
    ok = 0,
    invalid_visit,    ///< a layer, length or id out of range; explain_visit has the numbers
    visit_too_large,  ///< more tokens than geometry::max_tokens_per_visit
    no_victim,        ///< not even one token's experts fit beside the pinned slots; nothing changed
    plan_open,        ///< an earlier plan was neither committed nor aborted
    visit_unfinished,  ///< the last visit has groups left: serve them, or abandon it
    no_plan,  ///< commit or abort of a plan that is not the open one, or no group of its visit is left
    busy,     ///< a slot is pinned or filling: drain first
    exceeds_memory,    ///< a quota that the pool's slots cannot give, or tokens beyond a recorder's
    fill_failed,       ///< a copy did not arrive; its slot is free and no row names it
    invalid_argument,  ///< a key, slot or size out of range
    does_not_fit,  ///< the visit needs more slots than there are and may not be split; nothing changed
};
// clang-format on

/// Complexity: O(1). Returns a sentence fragment fit for a message.
[[nodiscard]] constexpr std::string_view describe(status s) noexcept {
  switch (s) {
    case status::ok: return "ok";
    case status::invalid_visit: return "invalid visit: a layer, a length or an id out of range";
    case status::visit_too_large: return "visit too large: raise max_tokens_per_visit";
    case status::no_victim: return "no victim: every slot is pinned, filling or protected";
    case status::plan_open: return "a plan is open: commit or abort it first";
    case status::visit_unfinished: return "the last visit has groups left: serve or abandon them";
    case status::no_plan: return "this plan is not the open one, or its visit has no group left";
    case status::busy: return "busy: a slot is pinned or filling";
    case status::exceeds_memory:
      return "more than there is room for: slots, or a recorder's tokens";
    case status::fill_failed: return "a fill failed";
    case status::invalid_argument: return "argument out of range";
    case status::does_not_fit: return "the visit does not fit its pool and may not be split";
  }
  return "unknown status";
}

}  // namespace hotset
