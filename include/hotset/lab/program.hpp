// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The hotset program as a function, for a main that adds its own policies.

#include "hotset/version.hpp"

namespace hotset {

/// Runs `hotset <arguments>` with the policies registered in `policies()`. Returns its exit code; does not throw.
/// Handles the signals that end a program, and reads standard input.
int run_program(int argc, char** argv) noexcept;

}  // namespace hotset
