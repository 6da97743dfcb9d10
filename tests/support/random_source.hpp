// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Random numbers of the shipped suites, under the name that tests use.

#include "hotset/testing/random_source.hpp"

namespace hotset::support {
using suites::random_source;
}  // namespace hotset::support
