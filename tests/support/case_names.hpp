// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Names of parameterised cases without a name of their own.

#include <string>

namespace hotset::support {

/// The case's index in its table, because test names allow neither addresses nor signs.
inline constexpr auto by_place = [](const auto& instance) {
  return "case_" + std::to_string(instance.index);
};

}  // namespace hotset::support
