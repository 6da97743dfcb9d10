// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Marks a function into which all that it calls is inlined, where nothing instruments the code: a sanitizer's checks
/// multiply by the copies, and a policy took more than twice as long to compile.

#include "hotset/version.hpp"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HOTSET_FLATTEN
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HOTSET_FLATTEN
#endif
#endif
#if !defined(HOTSET_FLATTEN)
#define HOTSET_FLATTEN [[gnu::flatten]]
#endif
