// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Interprets patterns of module names, as in a checkpoint's quantization_config.

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "lab/models/model_shape.hpp"

namespace hotset::lab {

/// Modules of one layer or all, and of one routed expert or all.
struct named_modules {
  module_set modules = 0;  ///< empty: weights that are never quantised, or not counted here
  std::optional<std::uint64_t> layer{};
  std::optional<std::uint64_t> expert{};
};

/// Patterns are names, globs or regular expressions, depending on the method. Only words of published checkpoints are
/// accepted, with alternatives, and with wildcards for all layers or experts: matching a regular expression from a
/// file can take unbounded time.
/// Returns nothing if a part of the pattern is not recognised. `mlp_is_dense`: experts are beside "mlp", not below it.
[[nodiscard]] std::optional<std::vector<named_modules>> modules_named(std::string_view pattern,
                                                                      bool mlp_is_dense = false);

}  // namespace hotset::lab
