// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Names of cases that have none of their own.

#include <string>

namespace hotset::support {

/// The case's place in its table: names of tests hold neither addresses nor signs.
inline constexpr auto by_place = [](const auto& instance) {
  return "case_" + std::to_string(instance.index);
};

}  // namespace hotset::support
