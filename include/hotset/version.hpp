// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Version of the library, which CMake reads here, and the language that it needs.
/// Everything lives in `namespace hotset`.

#define HOTSET_VERSION_MAJOR 0
#define HOTSET_VERSION_MINOR 1
#define HOTSET_VERSION_PATCH 0
/// One number for `#if`: 10000 * major + 100 * minor + patch.
#define HOTSET_VERSION \
  (HOTSET_VERSION_MAJOR * 10000 + HOTSET_VERSION_MINOR * 100 + HOTSET_VERSION_PATCH)

#define HOTSET_TEXT_OF(number) #number
#define HOTSET_TEXT(macro) HOTSET_TEXT_OF(macro)
/// A literal such as "0.1.0".
#define HOTSET_VERSION_TEXT         \
  HOTSET_TEXT(HOTSET_VERSION_MAJOR) \
  "." HOTSET_TEXT(HOTSET_VERSION_MINOR) "." HOTSET_TEXT(HOTSET_VERSION_PATCH)

#if __cplusplus < 202002L
#error "hotset needs C++20: compile with -std=c++20 or later"
// This header does not exist. Including it ends the compilation: hundreds of errors would follow.
#include <hotset_needs_cxx_20>
#endif
