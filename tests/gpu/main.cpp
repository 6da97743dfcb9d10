// SPDX-License-Identifier: Apache-2.0
// main() of the device tests without GoogleTest, which has its own.
#include "gtest_shim.hpp"

int main() { return gtest_shim::run_all(); }
