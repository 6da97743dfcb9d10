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

/// Earlier uses of each key, as counted in a trace.
struct usage_profile {
  std::vector<double> counts{};  ///< [layers * experts] counts or frequencies; empty: none
  std::string source{};          ///< a file, "first n tokens", "the replayed trace": for the report

  [[nodiscard]] bool empty() const noexcept { return counts.empty(); }
  /// `policy`: name in the error.
  [[nodiscard]] validation validate(std::string_view policy) const {
    for (std::size_t k = 0; k < counts.size(); ++k)
      if (!(counts[k] >= 0.0) || std::isinf(counts[k]))
        return refusal(policy, " profile[", k, "] = ", counts[k], ", accepted: finite, 0 or more");
    return std::nullopt;
  }
  /// Also checks that it has this shape.
  [[nodiscard]] validation validate(std::string_view policy, const geometry& shape) const {
    if (!counts.empty() && counts.size() != shape.keys())
      return refusal(policy, " profile has ", counts.size(),
                     " entries, accepted: none or layers x experts (", shape.keys(), ")");
    return validate(policy);
  }
};

/// A policy that needs a missing part is refused.
struct policy_knowledge {
  std::shared_ptr<const future_uses> future{};  ///< for policies whose traits say needs_future
  usage_profile profile{};                      ///< for policies with a profile_request
  shared_use_orders numbered{};  ///< numbering of `future`; none: each policy numbers it for itself
};

/// Source of a policy's profile.
struct profile_request {
  std::string source{"trace"};  ///< "trace": the replayed one; else a trace file
  std::uint64_t first = 0;      ///< tokens to count; 0: all
  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 takes the defaulted comparison for a 0
  friend auto operator<=>(const profile_request&, const profile_request&) = default;
};

}  // namespace hotset
