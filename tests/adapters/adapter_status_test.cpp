// SPDX-License-Identifier: Apache-2.0
#include "hotset/adapters/adapter_status.hpp"

#include <set>
#include <string_view>

#include <gtest/gtest.h>

namespace hotset::adapter_status_test {
namespace {

using enum adapter_status;

TEST(adapter_status, every_status_has_a_text_of_its_own) {
  std::set<std::string_view> texts;
  for (const auto s :
       {ok, unknown, pinned, not_pinned, no_room, not_read, not_mapped, not_copied, not_drained})
    EXPECT_TRUE(texts.insert(describe(s)).second) << describe(s);
}

}  // namespace
}  // namespace hotset::adapter_status_test
