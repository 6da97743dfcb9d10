// SPDX-License-Identifier: Apache-2.0
#include "hotset/transfer/memory/resizable_pool.hpp"

#include <gtest/gtest.h>

namespace hotset::resizable_pool_test {
namespace {

/// The least that satisfies the concept; what follows takes one thing away.
struct archetype {
  [[nodiscard]] std::uint64_t unit_bytes() const noexcept { return 1; }
  [[nodiscard]] std::uint64_t capacity() const noexcept { return 0; }
  [[nodiscard]] std::uint64_t in_use() const noexcept { return 0; }
  [[nodiscard]] std::uint64_t peak() const noexcept { return 0; }
  [[nodiscard]] bool drained() const noexcept { return true; }
  void reset_peak() noexcept {}
  status shrink(std::uint64_t) noexcept { return status::ok; }
  status grow(std::uint64_t) noexcept { return status::ok; }
};
struct throwing_growth : archetype {
  status grow(std::uint64_t) { return status::ok; }
};
struct silent_shrink : archetype {
  void shrink(std::uint64_t) noexcept {}
};
struct counts_in_int : archetype {
  [[nodiscard]] int in_use() const noexcept { return 0; }
};
struct cannot_say_whether_drained : archetype {
  void drained() const noexcept {}
};
struct never_forgets_its_peak : archetype {
  void reset_peak() noexcept = delete;
};
struct changes_when_asked : archetype {
  [[nodiscard]] std::uint64_t peak() noexcept { return 0; }
};

TEST(resizable_pool, takes_the_archetype_and_nothing_less) {
  EXPECT_TRUE(resizable_pool<archetype>);
  EXPECT_FALSE(resizable_pool<throwing_growth>);
  EXPECT_FALSE(resizable_pool<silent_shrink>);
  EXPECT_FALSE(resizable_pool<counts_in_int>);
  EXPECT_FALSE(resizable_pool<cannot_say_whether_drained>);
  EXPECT_FALSE(resizable_pool<never_forgets_its_peak>);
  EXPECT_FALSE(resizable_pool<changes_when_asked>);
}

}  // namespace
}  // namespace hotset::resizable_pool_test
