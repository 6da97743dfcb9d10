// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Fetches every miss at the highest precision.
///
/// Rule: an expert that a visit names and that no slot serves at precision 0 is copied at precision 0.
/// Source: SpecMD 3.1.2 ("basic fetch"); the default of every pager.
/// Deviations: none. A copy held at a lower precision is a miss: this policy never serves it.
/// Exact: yes.
/// Cost: none; it need not be called.

#include <cstddef>
#include <span>
#include <string_view>

#include "hotset/policy/miss_policy.hpp"
#include "hotset/policy/policy_config.hpp"

namespace hotset {

class fetch {
 public:
  using config = no_options;
  static constexpr std::string_view name = "fetch";
  static constexpr miss_traits traits{.is_exact = true, .fetches_all = true};

  explicit fetch(const geometry&, const config& = {}) {}

  void decide(std::span<const miss> misses, const routing_view&, const residency_view&,
              std::span<expert_id>, std::span<miss_decision> out) const noexcept {
    for (std::size_t n = 0; n < misses.size(); ++n) out[n] = {miss_action::fetch, precision_id{}};
  }
  void observe(std::span<const float>) noexcept {}
  [[nodiscard]] precision_id prefetch_precision() const noexcept { return precision_id{}; }
};

static_assert(miss_policy<fetch>);

}  // namespace hotset
