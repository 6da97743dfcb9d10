// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Leaves the router's selection unchanged.
///
/// Rule: the router's ids and gate weights, unchanged.
/// Source: SpecMD 3.1.1 (standard routing).
/// Deviations: none.
/// Exact: yes.
/// Cost: O(1) per place; none if the arrays are the router's own.

#include <span>
#include <string_view>

#include "hotset/policy/policy_config.hpp"
#include "hotset/policy/routing_policy.hpp"

namespace hotset {

class router_order {
 public:
  using config = no_options;
  static constexpr std::string_view name = "router_order";
  static constexpr routing_traits traits{.is_exact = true};

  explicit router_order(const geometry&, const config& = {}) {}

  /// `weights` may be empty if they are not wanted. Errors: invalid_visit if an array's length is not the view's.
  status route(const routing_view& view, const residency_view&, std::span<expert_id> selected,
               std::span<float> weights) const noexcept {
    if (selected.size() != view.experts.size() ||
        (!weights.empty() && weights.size() != view.weights.size()))
      return status::invalid_visit;
    hand_on(view, selected, weights);
    return status::ok;
  }
};

static_assert(routing_policy<router_order>);

}  // namespace hotset
