// SPDX-License-Identifier: Apache-2.0
#include "hotset/core/policy/create_policy.hpp"

#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/eviction/any_eviction_policy.hpp"
#include "hotset/eviction/belady.hpp"
#include "hotset/eviction/lfru.hpp"
#include "hotset/eviction/popularity.hpp"
#include "hotset/eviction/protect_hot.hpp"
#include "hotset/miss/fetch_lowest.hpp"
#include "hotset/paging/pager.hpp"
#include "hotset/prefetch/popular.hpp"

namespace hotset::create_policy_test {
namespace {

using testing::HasSubstr;

const geometry shape{.layers = 2, .experts = 4, .top_k = 1};
const popularity::config of_another_model{.profile = {{1, 2, 3}, "elsewhere"}};

pool_layout layout() { return pool_layout::shared(shape, 3).value(); }

TEST(create_policy, builds_what_can_work) {
  EXPECT_TRUE(create_policy<lfru>(layout()));
  EXPECT_TRUE(create_policy<popularity>(layout(), {.profile = {{1, 2, 3, 4, 5, 6, 7, 8}, ""}}));
  EXPECT_TRUE(create_policy<popular>(shape, {.count = 2}));
}

TEST(create_policy, refuses_what_a_config_refuses) {
  const auto refused = create_policy<lfru>(layout(), {.decay = 2});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("lfru decay"));
  EXPECT_FALSE(create_policy<popular>(shape, {.count = -1}));
}

TEST(create_policy, refuses_what_belongs_to_another_model) {
  EXPECT_THAT(create_policy<popularity>(layout(), of_another_model).error().message,
              HasSubstr("layers x experts (8)"));
  EXPECT_FALSE(create_policy<popular>(shape, {.profile = {{1, 2, 3}, ""}}));
  EXPECT_FALSE(create_policy<fetch_lowest>(shape));
  EXPECT_FALSE(create_policy<popular>(geometry{}));
}

// One way to construct: the pager asks the same, through decorators and what was chosen at run time.
TEST(create_policy, a_pager_refuses_the_same) {
  EXPECT_FALSE(pager<popularity>::create({.layout = layout(), .eviction = of_another_model}));
  EXPECT_FALSE(pager<protect_hot<popularity>>::create(
      {.layout = layout(), .eviction = {.inner = of_another_model}}));
  EXPECT_FALSE(pager<any_eviction_policy>::create(
      {.layout = layout(),
       .eviction =
           any_eviction_policy::holding<protect_hot<popularity>>({.inner = of_another_model})}));
  const geometry larger{.layers = 3, .experts = 4, .top_k = 1};
  const auto future = std::make_shared<const future_uses>(future_uses::create(larger, {}).value());
  EXPECT_FALSE(pager<belady>::create({.layout = layout(), .eviction = {.future = future}}));
}

}  // namespace
}  // namespace hotset::create_policy_test
