// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Fills of the shipped suites, under the name that tests use.

#include "hotset/testing/fills.hpp"

namespace hotset::support {
using suites::fill_of;
}  // namespace hotset::support
