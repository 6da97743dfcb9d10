// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The configuration of what has nothing to configure.

#include <optional>

#include "hotset/core/error.hpp"

namespace hotset {

struct no_options {
  [[nodiscard]] validation validate() const { return std::nullopt; }
};

}  // namespace hotset
