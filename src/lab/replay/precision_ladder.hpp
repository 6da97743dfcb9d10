// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Named precisions of experts, such as "8:4:2", and the share of the slots' bytes for each.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/core/pool_layout.hpp"

namespace hotset::lab {

/// Highest first. The first has the expert bytes of the trace or model.
struct precision_ladder {
  std::vector<std::uint32_t> bits{};
  std::vector<double> shares{};  ///< shares of the bytes, sum 1; as many as bits
  std::string text{};            ///< as given

  /// Parses "8:4:2", or with shares in percent "8:4@75:25" (default: equal shares).
  /// Errors: usage_error.
  [[nodiscard]] static precision_ladder parse(std::string_view text);
  [[nodiscard]] bool several() const noexcept { return bits.size() > 1; }
};

/// The shape with its lower precisions: bytes proportional to bits. Errors: usage_error without expert bytes.
[[nodiscard]] geometry with_precisions(const geometry& shape, const precision_ladder& ladder);

/// Divides the slots of a one-precision layout into a pool for each precision, with the same bytes in all.
/// `shape` has all precisions. Errors: infeasible_error if a token could not be served.
[[nodiscard]] pool_layout divide_by_precision(const pool_layout& whole, const geometry& shape,
                                              std::span<const double> shares);

}  // namespace hotset::lab
