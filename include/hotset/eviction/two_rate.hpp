// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Evicts the expert with the lowest recent use, by two rates; experts of nearer layers are worth more.
///
/// Rule: order by value * discount^(distance / layers), then recency position; distance = (layer - running - 1) mod
///   layers + 1. The value is p + lately * fast of two_rates, where p is their blend. It includes the visit itself.
/// Source: ours: `similar_steps` without history.
/// Deviations: the visit counts before its victims are chosen (residency is judged as ever).
/// Exact: yes (never changes what is computed).
/// Cost: O(E) per visit, vectorised. A victim costs O(E), plus O(L) in a pool of several layers. Memory: 16 bytes per
///   key, 24 per slot.

#include <string_view>

#include "hotset/eviction/next_use_order.hpp"

namespace hotset {

class two_rate : public next_use_order {
 public:
  struct config {
    double fast = two_rates::config{}.fast_half_life;  ///< half-life in visits of a layer
    double slow = two_rates::config{}.slow_half_life;
    double blend = two_rates::config{}.blend;
    double lately = next_use_values::config{}.lately;
    double discount = next_use_values::config{}.discount;  ///< per step

    /// Parameters by name, as in `two_rate:fast=2:slow=128`.
    template <class From>
    static config read(From& from) {
      return {.fast = from.real("fast", config{}.fast),
              .slow = from.real("slow", config{}.slow),
              .blend = from.real("blend", config{}.blend),
              .lately = from.real("lately", config{}.lately),
              .discount = from.real("discount", config{}.discount)};
    }
    [[nodiscard]] validation validate() const { return values().validate(); }
    [[nodiscard]] next_use_values::config values() const {
      next_use_values::config out;
      out.lately = lately;
      out.discount = discount;
      out.rates = {fast, slow, blend};
      return out;
    }
  };
  static constexpr std::string_view name = "two_rate";

  two_rate(const pool_layout& layout, const config& options)
      : next_use_order(layout, options.values()) {}
};

static_assert(is_eviction_policy<two_rate>());

}  // namespace hotset
