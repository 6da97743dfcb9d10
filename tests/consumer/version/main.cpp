// SPDX-License-Identifier: Apache-2.0
// CMake's version equals the header's, in parts and as one number.
#include <cstdio>
#include <string>

#include "hotset/version.hpp"

int main() {
  const std::string stated = std::to_string(HOTSET_VERSION_MAJOR) + "." +
                             std::to_string(HOTSET_VERSION_MINOR) + "." +
                             std::to_string(HOTSET_VERSION_PATCH);
#if HOTSET_VERSION < 100 || HOTSET_VERSION >= 1000000
#error "HOTSET_VERSION does not compare with 0.1.0 and 100.0.0"
#endif
#if defined(FOUND_VERSION)
  int major = 0;
  int minor = 0;
  int patch = 0;
  if (std::sscanf(FOUND_VERSION, "%d.%d.%d", &major, &minor, &patch) != 3 ||
      HOTSET_VERSION != major * 10000 + minor * 100 + patch) {
    std::printf("found %s, HOTSET_VERSION is %d\n", FOUND_VERSION, HOTSET_VERSION);
    return 1;
  }
  if (stated != FOUND_VERSION) {
    std::printf("found %s, the header says %s\n", FOUND_VERSION, stated.c_str());
    return 1;
  }
#endif
  std::printf("hotset %s\n", stated.c_str());
}
