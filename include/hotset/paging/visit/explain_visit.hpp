// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Explains in words why a pager refuses a view: the array, its numbers, and what is accepted.

#include <cstddef>
#include <string>

#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/routing_view.hpp"

namespace hotset {

/// Call it after invalid_visit or visit_too_large. Returns the first fault, or nothing where the view fits the shape.
/// Allocates; not for the hot path. Complexity: O(ids).
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
           "; fill up with -1";
  if (!view.weights.empty() && view.weights.size() != ids)
    return "weights: " + say(view.weights.size()) + " numbers, accepted: " + say(ids) +
           ", one per id, or none";
  for (std::size_t i = 0; i < ids; ++i)
    if (const auto id = number(view.experts[i]); id < -1 || id >= shape.experts)
      return "experts[" + say(i) + "] = " + say(id) + ", accepted: 0.." + say(shape.experts - 1) +
             ", or -1 for none";
  return {};
}

}  // namespace hotset
