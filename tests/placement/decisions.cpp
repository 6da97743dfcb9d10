// SPDX-License-Identifier: Apache-2.0
// Prints the placements of made loads: every_build_test.sh compares builds.
#include <cstdint>
#include <cstdio>

#include "hotset/placement/place_by_steps.hpp"
#include "made_loads.hpp"

namespace {

void print(const hotset::expert_placement& placed) {
  for (const auto e : placed) std::printf("%d ", number(e));
  std::printf("\n");
}

}  // namespace

int main() {
  const auto shape = hotset::placement_shape::of(64, 16, 8).value();
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const auto first =
        hotset::place_by_steps(shape, hotset_test::made_loads(64, 60, seed), {.starts = 3}).value();
    print(first);
    print(hotset::place_by_steps(shape, hotset_test::made_loads(64, 37, seed + 10),
                                 {.start = first, .move_cost = 2000})
              .value());
  }
  return 0;
}
