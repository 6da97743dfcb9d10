// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The version of the library; CMake reads it from here. Everything lives in `namespace hotset::inline v0`.

#define HOTSET_VERSION_MAJOR 0
#define HOTSET_VERSION_MINOR 1
#define HOTSET_VERSION_PATCH 0
