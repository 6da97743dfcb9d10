// SPDX-License-Identifier: Apache-2.0
// The smallest user of an installed hotset.
#include <cstdio>

#include "hotset/version.hpp"

int main() {
  std::printf("hotset %d.%d.%d\n", HOTSET_VERSION_MAJOR, HOTSET_VERSION_MINOR,
              HOTSET_VERSION_PATCH);
}
