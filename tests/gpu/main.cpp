// SPDX-License-Identifier: Apache-2.0
// The main of the tests on a device where GoogleTest, which brings its own, is absent.
#include "gtest_shim.hpp"

int main() { return gtest_shim::run_all(); }
