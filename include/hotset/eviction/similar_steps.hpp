// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Evicts the expert that the tokens after similar past tokens used least and latest.
///
/// Rule: order by value * discount^(distance / layers), then recency position; the value is that of next_use_values:
///       past tokens that routed most like the running one vote for what the tokens after them used; two_rates fill
///       what they leave open. distance = (layer - running - 1) mod layers + 1. It needs ids only.
/// Source: ours; no paper has it. docs/which-policy.md: how much of the gap between LRU and Belady it closes, and
///       each part of it.
/// Deviations: the visit counts before its victims are chosen (residency is judged as ever). Sequences that run
///       together each vote, where a union of their experts would be like nothing.
/// Exact: yes (never changes what is computed).
/// Cost: O(rows + E) per visit and running sequence, vectorised, and O(matches * E) where something is evicted; a
///       victim O(E), in a pool of several layers O(L) more. Memory: that of routing_history, 16 bytes a key and 24 a
///       slot: 4.7 MiB at 48 x 128 and 1,024 rows.

#include <cstdint>
#include <string_view>

#include "hotset/eviction/next_use_order.hpp"

namespace hotset {

class similar_steps : public next_use_order {
 public:
  struct config {
    std::int32_t rows = routing_history::config{}.rows;  ///< tokens that are remembered
    std::int32_t sequences = routing_history::config{}.sequences;
    std::int32_t matches = next_use_values::config{}.matches;
    std::int32_t horizon = next_use_values::config{}.horizon;
    double reach = routing_history::config{}.reach;
    double sharpness = next_use_values::config{}.weights.sharpness;
    double discount = next_use_values::config{}.discount;  ///< per step
    history_source from{};                                 ///< what it starts from; none: nothing

    /// Parameters by name, as in `similar_steps:rows=1024:matches=16` or `similar_steps:from=FILE`.
    template <class From>
    static config read(From& from) {
      return {.rows = from.number("rows", config{}.rows),
              .sequences = from.number("sequences", config{}.sequences),
              .matches = from.number("matches", config{}.matches),
              .horizon = from.number("horizon", config{}.horizon),
              .reach = from.real("reach", config{}.reach),
              .sharpness = from.real("sharpness", config{}.sharpness),
              .discount = from.real("discount", config{}.discount),
              .from = history_source::read(from)};
    }
    [[nodiscard]] validation validate() const { return values().validate(); }
    [[nodiscard]] validation validate(const geometry& shape) const {
      return values().validate(shape);
    }
    [[nodiscard]] next_use_values::config values() const {
      next_use_values::config out;
      out.history = routing_history::config{rows, sequences, reach};
      out.matches = matches;
      out.horizon = horizon;
      out.weights.sharpness = sharpness;
      out.discount = discount;
      out.from = from;
      return out;
    }
  };
  static constexpr std::string_view name = "similar_steps";

  similar_steps(const pool_layout& layout, const config& options)
      : next_use_order(layout, options.values()) {}
};

static_assert(is_eviction_policy<similar_steps>());

}  // namespace hotset
