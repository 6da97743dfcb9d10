// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Result code of hot-path calls, which never throw and never allocate.

#include <cstdint>
#include <string_view>

#include "hotset/version.hpp"

namespace hotset {

// clang-format off: version 14 parses an attributed enum as a function
/// Result of a call on the hot path. These calls do not throw.
enum class [[nodiscard]] status : std::uint8_t{
    ok = 0,
    invalid_visit,     ///< a layer, length or id out of range; explain_visit has the numbers
    visit_too_large,   ///< more tokens than geometry::max_tokens_per_visit
    no_victim,         ///< one token's experts do not fit beside the pinned slots; nothing changed
    plan_open,         ///< an earlier plan was neither committed nor aborted
    visit_unfinished,  ///< the last visit has groups left: serve or abandon them
    no_plan,           ///< the plan is not the open one, or its visit has no group left
    busy,              ///< a slot is pinned or filling: drain first
    exceeds_memory,    ///< too few slots or too little memory, or too many tokens for a recorder
    fill_failed,       ///< a copy failed; its slot is free and no row names it
    invalid_argument,  ///< a key, slot or size out of range
    /// The visit needs more slots than there are and may not be split; nothing changed.
    does_not_fit,
};
// clang-format on

/// Returns a sentence fragment for a message. Complexity: O(1).
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
    case status::exceeds_memory: return "not enough room: slots, memory, or tokens of a recorder";
    case status::fill_failed: return "a fill failed";
    case status::invalid_argument: return "argument out of range";
    case status::does_not_fit: return "the visit does not fit its pool and may not be split";
  }
  return "unknown status";
}

}  // namespace hotset
