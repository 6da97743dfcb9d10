// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The one question that every create asks of a configuration: can it work for a model of this shape.

#include <optional>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"

namespace hotset {

/// Asks `validate()`, and `validate(shape)` where the configuration has one.
template <class Config>
[[nodiscard]] validation validate_for(const Config& config, const geometry& shape) {
  if (auto bad = config.validate()) return bad;
  if constexpr (requires { config.validate(shape); }) return config.validate(shape);
  return std::nullopt;
}

}  // namespace hotset
