// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The hotset program as a function, for a main that adds policies of its own to it.

#include "hotset/version.hpp"

namespace hotset {

/// What `hotset <arguments>` does, with whatever `policies()` holds by now. Returns its exit code; nothing is thrown.
/// Handles the signals that end a program, and reads standard input.
int run_program(int argc, char** argv) noexcept;

}  // namespace hotset
