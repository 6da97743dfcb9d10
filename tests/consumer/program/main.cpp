// SPDX-License-Identifier: Apache-2.0
// A user's own hotset program.
#include "hotset/lab/program.hpp"

int main(int argc, char** argv) { return hotset::run_program(argc, argv); }
