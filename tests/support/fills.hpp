// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The fills of the shipped suites, by the name that tests use.

#include "hotset/testing/fills.hpp"

namespace hotset::support {
using suites::fill_of;
}  // namespace hotset::support
