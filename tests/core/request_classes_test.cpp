// SPDX-License-Identifier: Apache-2.0
#include "hotset/core/request_classes.hpp"

#include <string_view>

#include <gtest/gtest.h>

namespace hotset::request_classes_test {
namespace {

TEST(request_classes, stand_where_their_numbers_say) {
  for (std::size_t i = 0; i < request_classes.size(); ++i)
    EXPECT_EQ(static_cast<std::size_t>(request_classes[i].first), i);
  EXPECT_EQ(std::string_view(name_of(request_class::decode)), "decode");
  EXPECT_EQ(std::string_view(name_of(request_class::prefill)), "prefill");
  EXPECT_EQ(std::string_view(name_of(request_class::verify)), "verify");
}

}  // namespace
}  // namespace hotset::request_classes_test
