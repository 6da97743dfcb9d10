// SPDX-License-Identifier: Apache-2.0
#include "hotset/planning/budget/allocation.hpp"

#include <gtest/gtest.h>

namespace hotset::allocation_test {
namespace {

/// The least that satisfies the concept; each of the others lacks one thing.
struct archetype {
  [[nodiscard]] result<allocation> allocate(std::span<const memory_consumer>, std::uint64_t) const {
    return allocation{};
  }
};
struct cannot_refuse : archetype {
  [[nodiscard]] allocation allocate(std::span<const memory_consumer>, std::uint64_t) const {
    return {};
  }
};
struct remembers : archetype {
  [[nodiscard]] result<allocation> allocate(std::span<const memory_consumer>, std::uint64_t) {
    return allocation{};
  }
};
struct without_a_budget : archetype {
  [[nodiscard]] result<allocation> allocate(std::span<const memory_consumer>) const {
    return allocation{};
  }
};

TEST(quota_allocator, takes_the_archetype_and_nothing_less) {
  EXPECT_TRUE(quota_allocator<archetype>);
  EXPECT_FALSE(quota_allocator<cannot_refuse>);
  EXPECT_FALSE(quota_allocator<remembers>);
  EXPECT_FALSE(quota_allocator<without_a_budget>);
}

}  // namespace
}  // namespace hotset::allocation_test
