// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How often each key was used before, as somebody has counted it.

#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"

namespace hotset {

struct usage_profile {
  std::vector<double> counts{};  ///< [layers * experts] counts or frequencies; empty: none
  std::string source{};          ///< a file, "first n tokens", "the replayed trace": for the report

  [[nodiscard]] bool empty() const noexcept { return counts.empty(); }
  /// `policy`: whose profile it is, for the reason.
  [[nodiscard]] validation validate(std::string_view policy) const {
    for (std::size_t k = 0; k < counts.size(); ++k)
      if (!(counts[k] >= 0.0) || std::isinf(counts[k]))
        return error{std::string(policy) + " profile[" + std::to_string(k) +
                     "] = " + std::to_string(counts[k]) + ", accepted: finite, 0 or more"};
    return std::nullopt;
  }
  /// As above, and it must belong to this shape.
  [[nodiscard]] validation validate(std::string_view policy, const geometry& shape) const {
    if (!counts.empty() && counts.size() != shape.keys())
      return error{std::string(policy) + " profile has " + std::to_string(counts.size()) +
                   " entries, accepted: none or layers x experts (" + std::to_string(shape.keys()) +
                   ")"};
    return validate(policy);
  }
};

}  // namespace hotset
