// SPDX-License-Identifier: Apache-2.0
#include "hotset/core/platform/fetch_soon.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace hotset::fetch_soon_test {

TEST(fetch_soon, changes_nothing_and_takes_any_address) {
  const std::vector<float> values(100, 1.5F);
  fetch_soon(values.data());
  fetch_soon(values.data(), values.size());
  fetch_soon(values.data(), 0);
  fetch_soon(nullptr);
  EXPECT_EQ(values, std::vector<float>(100, 1.5F));
}

}  // namespace hotset::fetch_soon_test
