// SPDX-License-Identifier: Apache-2.0
// The hotset program with a custom policy: new_policy simulate <trace> --eviction most_recent --slots 12.5%
#include <cstdio>

#include "hotset/lab/program.hpp"
#include "hotset/registry/policy_registry.hpp"
#include "most_recent.hpp"

int main(int argc, char** argv) {
  if (const auto taken = hotset::policies().add<most_recent>()) {
    std::fprintf(stderr, "%s\n", taken->message.c_str());
    return 1;
  }
  return hotset::run_program(argc, argv);
}
