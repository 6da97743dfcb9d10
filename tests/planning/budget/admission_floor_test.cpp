// SPDX-License-Identifier: Apache-2.0
#include "hotset/planning/budget/admission_floor.hpp"

#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

namespace hotset::admission_floor_test {
namespace {

TEST(admission_floor, is_whole_blocks_for_every_session) {
  EXPECT_EQ((admission_floor{.concurrency = 4, .context = 8192, .block_tokens = 16}.blocks()),
            2048U);
  EXPECT_EQ((admission_floor{.concurrency = 3, .context = 17, .block_tokens = 16}.blocks()), 6U);
  EXPECT_EQ((admission_floor{.concurrency = 3, .context = 0}.blocks()), 0U);
  constexpr auto most = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ((admission_floor{.context = most, .block_tokens = 2}.blocks()), most / 2 + 1);
}

TEST(admission_floor, refuses_what_cannot_be_counted) {
  constexpr auto most = std::numeric_limits<std::uint64_t>::max();
  EXPECT_FALSE((admission_floor{.concurrency = 1, .context = most, .block_tokens = 1}.validate()));
  EXPECT_EQ(admission_floor{.concurrency = 0}.validate()->message,
            "concurrency = 0, accepted: 1 or more");
  EXPECT_EQ((admission_floor{.context = 1, .block_tokens = 0}.validate()->message),
            "block_tokens = 0, accepted: 1 or more");
  EXPECT_TRUE((admission_floor{.concurrency = 2, .context = most, .block_tokens = 1}.validate()));
}

}  // namespace
}  // namespace hotset::admission_floor_test
