// SPDX-License-Identifier: Apache-2.0
/// Placement of experts on ranks through the C interface.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "calls.hpp"
#include "hotset/placement/place_by_steps.hpp"

using namespace hotset;  // NOLINT(google-build-using-namespace): a source of one function
using c::refuse;

namespace {

hotset_status place(const hotset_place_options& how, const std::uint32_t* loads, std::size_t steps,
                    std::span<std::int32_t> placed) {
  const auto shape =
      placement_shape::of(how.experts, how.redundant, how.ranks, how.nodes == 0 ? 1 : how.nodes,
                          how.groups == 0 ? 1 : how.groups);
  if (!shape) return refuse(HOTSET_INVALID_ARGUMENT, "%s", shape.error().message.c_str());
  if (placed.size() != static_cast<std::size_t>(shape->slots()))
    return refuse(HOTSET_INVALID_ARGUMENT, "slots = %zu, accepted: %d", placed.size(),
                  shape->slots());
  if (steps > place_config::most_steps)
    return refuse(HOTSET_INVALID_ARGUMENT, "steps = %zu, accepted: at most %zu", steps,
                  place_config::most_steps);
  const auto counts = steps * static_cast<std::size_t>(how.experts);
  const auto given = step_loads::of(how.experts, {loads, loads + counts});
  expert_placement start;
  if (how.start != nullptr)
    for (std::size_t slot = 0; slot < placed.size(); ++slot)
      start.push_back(static_cast<expert_id>(how.start[slot]));
  const auto found = place_by_steps(
      *shape, *given,
      {.start = start, .move_cost = how.move_cost, .starts = how.starts == 0 ? 1 : how.starts});
  if (!found) return refuse(HOTSET_INVALID_ARGUMENT, "%s", found.error().message.c_str());
  std::ranges::transform(*found, placed.begin(), [](expert_id e) { return number(e); });
  return HOTSET_OK;
}

}  // namespace

extern "C" {

hotset_status hotset_place(const hotset_place_options* options, const uint32_t* loads, size_t steps,
                           int32_t* placed, size_t slots) {
  hotset_place_options how{};
  if (const auto bad = c::take(options, how, "options"); bad != HOTSET_OK) return bad;
  if (steps > 0)
    if (const auto bad = c::needs(loads, "loads"); bad != HOTSET_OK) return bad;
  if (const auto bad = c::needs(placed, "placed"); bad != HOTSET_OK) return bad;
  return c::guarded([&] { return place(how, loads, steps, {placed, slots}); });
}

}  // extern "C"
