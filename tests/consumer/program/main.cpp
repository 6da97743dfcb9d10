// SPDX-License-Identifier: Apache-2.0
// A hotset program of its own.
#include "hotset/lab/program.hpp"

int main(int argc, char** argv) { return hotset::run_program(argc, argv); }
