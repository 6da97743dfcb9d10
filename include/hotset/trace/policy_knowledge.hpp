// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Knowledge for policies that look beyond the running visit.

#include <cmath>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/trace/future_uses.hpp"

namespace hotset {

/// How often each key was used before, as a trace counts it.
struct usage_profile {
  std::vector<double> counts{};  ///< [layers * experts] counts or frequencies; empty: none
  std::string source{};          ///< a file, "first n tokens", "the replayed trace": for the report

  [[nodiscard]] bool empty() const noexcept { return counts.empty(); }
  /// `policy`: named in the reason.
  [[nodiscard]] validation validate(std::string_view policy) const {
    for (std::size_t k = 0; k < counts.size(); ++k)
      if (!(counts[k] >= 0.0) || std::isinf(counts[k]))
        return refusal(policy, " profile[", k, "] = ", counts[k], ", accepted: finite, 0 or more");
    return std::nullopt;
  }
  /// Checks also that it belongs to this shape.
  [[nodiscard]] validation validate(std::string_view policy, const geometry& shape) const {
    if (!counts.empty() && counts.size() != shape.keys())
      return refusal(policy, " profile has ", counts.size(),
                     " entries, accepted: none or layers x experts (", shape.keys(), ")");
    return validate(policy);
  }
};

/// A missing part refuses the policy that needs it.
struct policy_knowledge {
  std::shared_ptr<const future_uses> future{};  ///< of policies whose traits say needs_future
  usage_profile profile{};                      ///< of policies that ask for one: profile_request
  shared_use_orders numbered{};  ///< of that future; none: each policy numbers it for itself
};

/// Where a policy takes its profile from.
struct profile_request {
  std::string source{"trace"};  ///< "trace": the one that is replayed; else a trace file
  std::uint64_t first = 0;      ///< tokens of it to count; 0: all
  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 takes the defaulted comparison for a 0
  friend auto operator<=>(const profile_request&, const profile_request&) = default;
};

}  // namespace hotset
