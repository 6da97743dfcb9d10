// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The precisions that experts exist in, by name: "8:4:2", and the share of the slots' bytes that each may take.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/core/pool_layout.hpp"

namespace hotset::lab {

/// Highest first. The first one is what the trace or the model calls an expert's bytes.
struct precision_ladder {
  std::vector<std::uint32_t> bits{};
  std::vector<double> shares{};  ///< of the bytes, sum 1; as many as bits
  std::string text{};            ///< as it was given

  /// Reads "8:4:2", or with shares in percent "8:4@75:25" (default: equal shares).
  /// Errors: usage_error.
  [[nodiscard]] static precision_ladder parse(std::string_view text);
  [[nodiscard]] bool several() const noexcept { return bits.size() > 1; }
};

/// The shape with its lower precisions: bytes in proportion to the bits. Errors: usage_error without expert bytes.
[[nodiscard]] geometry with_precisions(const geometry& shape, const precision_ladder& ladder);

/// Divides the room of a layout of one precision: a pool for each precision, holding as many bytes together.
/// `shape` names all precisions. Errors: infeasible_error if a token could not be served.
[[nodiscard]] pool_layout divide_by_precision(const pool_layout& whole, const geometry& shape,
                                              std::span<const double> shares);

}  // namespace hotset::lab
