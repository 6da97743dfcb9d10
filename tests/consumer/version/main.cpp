// SPDX-License-Identifier: Apache-2.0
// The version that CMake found is the version that the header states.
#include <cstdio>
#include <string>

#include "hotset/version.hpp"

int main() {
  const std::string stated = std::to_string(HOTSET_VERSION_MAJOR) + "." +
                             std::to_string(HOTSET_VERSION_MINOR) + "." +
                             std::to_string(HOTSET_VERSION_PATCH);
#if defined(FOUND_VERSION)
  if (stated != FOUND_VERSION) {
    std::printf("found %s, the header says %s\n", FOUND_VERSION, stated.c_str());
    return 1;
  }
#endif
  std::printf("hotset %s\n", stated.c_str());
}
