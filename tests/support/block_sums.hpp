// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The memory of all blocks of a model adds up to the model's.

#include <algorithm>
#include <cstdint>

#include <gtest/gtest.h>

#include "hotset/planning/budget/memory_model.hpp"

namespace hotset::support {

inline void expect_blocks_add_up(const memory_model& m) {
  SCOPED_TRACE(m.name);
  ASSERT_FALSE(m.validate());
  ASSERT_FALSE(m.blocks.empty());
  for (const std::uint64_t tokens : {1U, 100U, 5000U}) {
    std::uint64_t kept = 0;
    for (const auto& b : m.blocks)
      kept += b.state_bytes +
              b.kv_bytes_per_token * (b.window == 0 ? tokens : std::min(tokens, b.window));
    EXPECT_EQ(kept, m.kv_bytes(tokens)) << tokens << " tokens";
  }
}

}  // namespace hotset::support
