// SPDX-License-Identifier: Apache-2.0
#include "hotset/planning/curve/miss_curve.hpp"

#include <gtest/gtest.h>

namespace hotset::miss_curve_test {
namespace {

/// The least that satisfies the concept; what follows takes one thing away.
struct archetype {
  [[nodiscard]] double misses(std::size_t) const noexcept { return 0; }
  [[nodiscard]] std::size_t max_slots() const noexcept { return 0; }
};
struct throwing : archetype {
  [[nodiscard]] double misses(std::size_t) const { return 0; }
};
struct counts_whole_misses : archetype {
  [[nodiscard]] std::size_t misses(std::size_t) const noexcept { return 0; }
};
struct changes_when_asked : archetype {
  [[nodiscard]] double misses(std::size_t) noexcept { return 0; }
};
struct endless {
  [[nodiscard]] double misses(std::size_t) const noexcept { return 0; }
};
struct counts_slots_in_int : archetype {
  [[nodiscard]] int max_slots() const noexcept { return 0; }
};
struct throwing_end : archetype {
  [[nodiscard]] std::size_t max_slots() const { return 0; }
};

TEST(miss_curve, takes_the_archetype_and_nothing_less) {
  EXPECT_TRUE(miss_curve<archetype>);
  EXPECT_FALSE(miss_curve<throwing>);
  EXPECT_FALSE(miss_curve<counts_whole_misses>);
  EXPECT_FALSE(miss_curve<changes_when_asked>);
  EXPECT_FALSE(miss_curve<endless>);
  EXPECT_FALSE(miss_curve<counts_slots_in_int>);
  EXPECT_FALSE(miss_curve<throwing_end>);
}

}  // namespace
}  // namespace hotset::miss_curve_test
