// SPDX-License-Identifier: Apache-2.0
#include "hotset/policy/eviction_decorator.hpp"

#include <gtest/gtest.h>

#include "hotset/eviction/lru.hpp"
#include "hotset/eviction/similar_steps.hpp"

namespace hotset::eviction_decorator_test {
namespace {

template <class P>
struct named {
  static constexpr auto full_name = detail::decorate<P>("outer");
  static constexpr std::string_view name = full_name.view();
};

TEST(eviction_decorator, a_name_tells_what_is_decorated) {
  EXPECT_EQ(named<lru>::name, "outer<lru>");
  EXPECT_EQ(named<named<similar_steps>>::name, "outer<outer<similar_steps>>");
}

TEST(eviction_decorator, its_class_can_pass_on_everything) {
  constexpr auto of_class = detail::decorator_of(lru::traits);
  EXPECT_TRUE(of_class.hears_requests && of_class.hears_routes && of_class.hears_forecasts);
  EXPECT_FALSE(of_class.moves_by_itself) << "as what it decorates";
  EXPECT_TRUE(detail::decorator_of(similar_steps::traits).moves_by_itself);
}

}  // namespace
}  // namespace hotset::eviction_decorator_test
