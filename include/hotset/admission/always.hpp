// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Admits every miss.
///
/// Rule: yes.
/// Source: WiSP.
/// Deviations: none.
/// Exact: yes (never changes what is computed).
/// Cost: none; the pager does not call it.

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>

#include "hotset/policy/admission_policy.hpp"
#include "hotset/policy/policy_config.hpp"

namespace hotset {

class always {
 public:
  using config = no_options;
  static constexpr std::string_view name = "always";
  static constexpr admission_traits traits{.admits_all = true};

  explicit always(const pool_layout&, const config& = {}) {}

  void admit(const visit_context&, std::span<const expert_use> misses,
             std::span<std::uint8_t> admitted) const noexcept {
    std::fill_n(admitted.begin(), misses.size(), std::uint8_t{1});
  }
  void on_use(const expert_use&, bool, bool) noexcept {}
  void on_evict(expert_key, step_id) noexcept {}
};

static_assert(admission_policy<always>);

}  // namespace hotset
