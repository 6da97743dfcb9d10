// SPDX-License-Identifier: Apache-2.0
#include "hotset/planning/budget/quota_allocator.hpp"

#include <gtest/gtest.h>

namespace hotset::quota_allocator_test {
namespace {

struct consumer {};
struct division {};

/// The least that satisfies the concept; what follows takes one thing away.
struct archetype {
  using consumer_type = consumer;
  using allocation_type = division;
  [[nodiscard]] result<division> allocate(std::span<const consumer>, std::uint64_t) const {
    return division{};
  }
};
struct cannot_refuse : archetype {
  [[nodiscard]] division allocate(std::span<const consumer>, std::uint64_t) const { return {}; }
};
struct remembers : archetype {
  [[nodiscard]] result<division> allocate(std::span<const consumer>, std::uint64_t) {
    return division{};
  }
};
struct without_a_budget : archetype {
  [[nodiscard]] result<division> allocate(std::span<const consumer>) const { return division{}; }
};
struct for_nobody {
  using allocation_type = division;
  [[nodiscard]] result<division> allocate(std::span<const consumer>, std::uint64_t) const {
    return division{};
  }
};

TEST(quota_allocator, takes_the_archetype_and_nothing_less) {
  EXPECT_TRUE(quota_allocator<archetype>);
  EXPECT_FALSE(quota_allocator<cannot_refuse>);
  EXPECT_FALSE(quota_allocator<remembers>);
  EXPECT_FALSE(quota_allocator<without_a_budget>);
  EXPECT_FALSE(quota_allocator<for_nobody>);
}

}  // namespace
}  // namespace hotset::quota_allocator_test
