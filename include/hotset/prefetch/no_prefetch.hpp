// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Requests nothing: experts are copied when they are routed.
///
/// Rule: no requests.
/// Source: none; the baseline of every comparison.
/// Deviations: none.
/// Exact: yes (never changes what is computed).
/// Cost: none.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "hotset/policy/policy_config.hpp"
#include "hotset/policy/prefetch_policy.hpp"

namespace hotset {

class no_prefetch {
 public:
  using config = no_options;
  static constexpr std::string_view name = "no_prefetch";
  static constexpr prefetch_traits traits{.asks_nothing = true};

  explicit no_prefetch(const geometry&, const config& = {}) {}

  [[nodiscard]] std::int32_t depth() const noexcept { return 0; }
  [[nodiscard]] std::size_t most_requests() const noexcept { return 0; }
  void observe(const routing_view&) noexcept {}
  [[nodiscard]] std::size_t propose(const routing_view&, const forecast&,
                                    std::span<prefetch_request>) noexcept {
    return 0;
  }
};

static_assert(prefetch_policy<no_prefetch>);

}  // namespace hotset
