// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Facts on a model_type that no key of its configs tells.

#include <cstdint>
#include <string_view>

#include "lab/models/model_shape.hpp"

namespace hotset::lab {

struct hf_family {
  std::string_view types;  ///< separated by spaces, without "_text"
  trait_set traits = 0;
  qk_norm norm = qk_norm::none;
  std::string_view layers{};  ///< kinds of layers, repeated, unless a key lists them
  std::uint64_t norms = 2;    ///< a layer
  std::uint64_t dense = 0;    ///< first layers without experts, unless a key counts them
  std::uint64_t expert_norms = 0;
};

/// Returns nullptr for an unknown model_type.
[[nodiscard]] const hf_family* find_family(std::string_view type) noexcept;

}  // namespace hotset::lab
