// SPDX-License-Identifier: Apache-2.0
#include "hotset/policy/eviction_decorator.hpp"

#include <gtest/gtest.h>

#include "hotset/eviction/lru.hpp"
#include "hotset/eviction/similar_steps.hpp"

namespace hotset::eviction_decorator_test {
namespace {

TEST(eviction_decorator, its_class_can_forward_everything) {
  constexpr auto of_class = detail::decorator_of(lru::traits);
  EXPECT_TRUE(of_class.wants_requests && of_class.wants_routes && of_class.wants_forecasts);
  EXPECT_FALSE(of_class.moves_by_itself) << "as what it decorates";
  EXPECT_TRUE(detail::decorator_of(similar_steps::traits).moves_by_itself);
  EXPECT_TRUE(detail::moving(of_class).moves_by_itself);
}

}  // namespace
}  // namespace hotset::eviction_decorator_test
