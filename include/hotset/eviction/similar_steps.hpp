// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Evicts the expert that tokens after similar past tokens used least and latest.
///
/// Rule: order by value * discount^(distance / layers), then recency position; distance = (layer - running - 1) mod
///   layers + 1. The value is that of next_use_values: past tokens that routed most like the running one vote for the
///   experts that were used after them. two_rates values what they leave open. Needs ids only.
/// Source: ours; no paper has it. docs/which-policy.md states how much of the gap between LRU and Belady it closes,
///   and each part of it.
/// Deviations: the visit counts before its victims are chosen (residency is judged as ever). Sequences that run
///   together vote separately, because the union of their experts resembles no past token.
/// Exact: yes (never changes what is computed).
/// Cost: O(rows + E) per visit and running sequence, vectorised, plus O(matches * E) if something is evicted. A
///   victim costs O(E), plus O(L) in a pool of several layers. Memory: that of routing_history, 16 bytes per key and
///   24 per slot: 4.7 MiB at 48 x 128 and 1,024 rows.

#include <cstdint>
#include <string_view>

#include "hotset/eviction/next_use_order.hpp"

namespace hotset {

class similar_steps : public next_use_order {
 public:
  struct config {
    std::int32_t rows = routing_history::config{}.rows;  ///< remembered tokens
    std::int32_t sequences = routing_history::config{}.sequences;
    std::int32_t matches = next_use_values::config{}.matches;
    std::int32_t horizon = next_use_values::config{}.horizon;
    double reach = routing_history::config{}.reach;
    double sharpness = next_use_values::config{}.sharpness;
    double discount = next_use_values::config{}.discount;  ///< per step
    history_source from{};                                 ///< history to start from; none: empty

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
      out.sharpness = sharpness;
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
