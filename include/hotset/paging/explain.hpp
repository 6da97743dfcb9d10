// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Explains in words why a pager refuses a view, and warns of small pools. Allocates; not for the hot path.

#include <cstddef>
#include <optional>
#include <string>

#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/routing_view.hpp"

namespace hotset {

/// Explains why a pager refuses a view: the array, its numbers, and the accepted range. Call it after invalid_visit or
/// visit_too_large. Returns the first fault, or an empty string if the view fits the shape. Complexity: O(ids).
[[nodiscard]] inline std::string explain_visit(const routing_view& view, const geometry& shape) {
  const auto say = [](auto number) { return std::to_string(number); };
  const auto ids = view.experts.size();
  if (view.layer < 0 || view.layer >= shape.layers)
    return "layer " + say(number(view.layer)) + ", accepted: 0.." + say(shape.layers - 1);
  if (view.kind > request_class::verify)
    return "kind " + say(static_cast<int>(view.kind)) + ", accepted: 0..2";
  if (ids > shape.ids_per_visit())
    return "experts: " + say(ids) + " ids, accepted: at most " + say(shape.ids_per_visit()) +
           " (max_tokens_per_visit " + say(shape.max_tokens_per_visit) + " * top_k " +
           say(shape.top_k) + ")";
  if (ids % shape.ranks() != 0)
    return "experts: " + say(ids) + " ids, accepted: multiples of top_k = " + say(shape.top_k) +
           "; pad with -1";
  if (!view.weights.empty() && view.weights.size() != ids)
    return "weights: " + say(view.weights.size()) + " numbers, accepted: " + say(ids) +
           ", one per id, or none";
  for (std::size_t i = 0; i < ids; ++i)
    if (const auto id = number(view.experts[i]); id < -1 || id >= shape.experts)
      return "experts[" + say(i) + "] = " + say(id) + ", accepted: 0.." + say(shape.experts - 1) +
             ", or -1 for none";
  return {};
}

/// Warns of a shared pool that is smaller than one token's cycle through its layers.
/// With L layers of K experts in each step (batch 1), a shared LRU of S slots hits exactly 0 % while S <= (L - 1) * K.
/// The cycle of one token evicts each expert just before its next use. Slots of all precisions count. Returns the
/// warning with the smallest sufficient number of slots, or nothing.
[[nodiscard]] inline std::optional<std::string> cliff_warning(const pool_layout& layout) {
  for (std::size_t p = 0; p < layout.pools(); ++p) {
    const auto& pool = layout.at(static_cast<pool_id>(p));
    if (pool.precision != 0) continue;  // counted together with the highest precision
    std::int64_t slots = 0;
    for (std::size_t q = 0; q < layout.precisions(); ++q)
      slots += layout.at(layout.pool_of(pool.layers.front(), static_cast<precision_id>(q))).slots;
    const auto layers = static_cast<std::int64_t>(pool.layers.size());
    const auto cliff = (layers - 1) * layout.shape().top_k;
    if (layers < 2 || slots > cliff) continue;
    return "pool " + std::to_string(p) + " has " + std::to_string(slots) + " slots for " +
           std::to_string(layers) +
           " layers: decoding one sequence with a recency order hits 0 % up to " +
           std::to_string(cliff) + " slots; use at least " + std::to_string(cliff + 1);
  }
  return std::nullopt;
}

}  // namespace hotset
