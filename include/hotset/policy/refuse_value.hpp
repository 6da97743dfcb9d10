// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The one line in which a configuration refuses a number.

#include <string>
#include <string_view>

#include "hotset/core/error.hpp"

namespace hotset {

/// "name = value, accepted: range".
template <class Number>
[[nodiscard]] validation refuse_value(std::string_view name, Number value,
                                      std::string_view accepted) {
  auto line = std::string(name) + " = " + std::to_string(value);
  return error{line.append(", accepted: ").append(accepted)};
}

}  // namespace hotset
