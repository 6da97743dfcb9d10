// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The weights that a pattern of module names means, as the quantization_config of a checkpoint writes it.

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "lab/models/model_shape.hpp"

namespace hotset::lab {

/// Modules of one layer or of all, of one routed expert or of all.
struct named_modules {
  module_set modules = 0;  ///< empty: weights that are never quantised, or not counted here
  std::optional<std::uint64_t> layer{};
  std::optional<std::uint64_t> expert{};
};

/// Patterns are names, globs or regular expressions, by the method. Only the words of published checkpoints are
/// understood, with groups of alternatives and with wildcards for all layers or experts: matching a regular expression
/// that a file brings can take for ever.
/// Returns nothing if a part of the pattern is not understood.
[[nodiscard]] std::optional<std::vector<named_modules>> modules_named(std::string_view pattern);

}  // namespace hotset::lab
