// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The version of the library (CMake reads it from here) and the inline namespace that carries it.

#define HOTSET_VERSION_MAJOR 0
#define HOTSET_VERSION_MINOR 1
#define HOTSET_VERSION_PATCH 0

// Reopen the namespace under its current version, for code that must not spell the version.
// clang-format off
#define HOTSET_NAMESPACE_BEGIN namespace hotset { inline namespace v0 {
#define HOTSET_NAMESPACE_END } }
// clang-format on
