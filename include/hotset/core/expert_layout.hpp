// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The tensors that make up one expert: 1..8 of them, of any dtype and shape.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "hotset/core/error.hpp"

namespace hotset {

/// One tensor of an expert, such as `down_proj` or its block scales.
struct tensor_layout {
  std::string name;
  std::uint64_t bytes = 0;
};

/// What every expert of one size class consists of. An expert is usable only when all tensors are in place.
struct expert_layout {
  std::vector<tensor_layout> tensors;

  static constexpr std::size_t max_tensors = 8;

  [[nodiscard]] std::uint64_t bytes() const noexcept {
    std::uint64_t total = 0;
    for (const auto& t : tensors) total += t.bytes;
    return total;
  }
  [[nodiscard]] validation validate() const {
    if (tensors.empty() || tensors.size() > max_tensors)
      return error{"an expert of " + std::to_string(tensors.size()) + " tensors, accepted: 1.." +
                   std::to_string(max_tensors)};
    for (const auto& t : tensors)
      if (t.bytes == 0) return error{"tensor '" + t.name + "' has 0 bytes, accepted: 1 or more"};
    return std::nullopt;
  }
};

}  // namespace hotset
