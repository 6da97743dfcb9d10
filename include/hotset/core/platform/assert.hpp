// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Precondition checks: enabled in debug builds and with HOTSET_HARDENED; no cost otherwise.

#include "hotset/version.hpp"

#if defined(HOTSET_HARDENED) || !defined(NDEBUG)
#include <cstdio>
#include <cstdlib>
#define HOTSET_CHECKS 1
#define HOTSET_ASSERT(condition)                                                                 \
  ((condition) ? static_cast<void>(0)                                                            \
               : (std::fprintf(stderr, "%s:%d: precondition violated: %s\n", __FILE__, __LINE__, \
                               #condition),                                                      \
                  std::abort()))
#else
#define HOTSET_CHECKS 0
#define HOTSET_ASSERT(condition) static_cast<void>(0)
#endif
