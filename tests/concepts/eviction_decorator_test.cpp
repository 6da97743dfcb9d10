// SPDX-License-Identifier: Apache-2.0
#include "hotset/concepts/eviction_decorator.hpp"

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

TEST(eviction_decorator, hears_of_uses_one_by_one_and_passes_on_the_rest) {
  constexpr auto of_object = detail::decorated(similar_steps::traits);
  EXPECT_TRUE(of_object.hears_steps && of_object.hears_bypasses && of_object.hears_requests);
  EXPECT_TRUE(of_object.hears_routes) << "as what it decorates";
  EXPECT_FALSE(detail::decorated(lru::traits).hears_routes);
  EXPECT_FALSE(detail::decorated(lru::traits).hears_visits);
  EXPECT_FALSE(detail::decorated(lru::traits).hears_replacements) << "it hears of every fill";
  constexpr auto of_class = detail::decorator_of(lru::traits);
  EXPECT_TRUE(of_class.hears_routes && of_class.hears_forecasts) << "it can pass on everything";
}

}  // namespace
}  // namespace hotset::eviction_decorator_test
