// SPDX-License-Identifier: Apache-2.0
#include "hotset/policy/policy_config.hpp"

#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/eviction/belady.hpp"
#include "hotset/eviction/lfru.hpp"
#include "hotset/eviction/popularity.hpp"
#include "hotset/eviction/protect_hot.hpp"
#include "hotset/miss/fetch_lowest.hpp"
#include "hotset/paging/pager.hpp"
#include "hotset/policy/any/any_eviction_policy.hpp"
#include "hotset/prefetch/popular.hpp"

namespace hotset::policy_config_test {
namespace {

using testing::HasSubstr;

const geometry shape{.layers = 2, .experts = 4, .top_k = 1};
const popularity::config of_another_model{.profile = {{1, 2, 3}, "elsewhere"}};

pool_layout layout() { return pool_layout::shared(shape, 3).value(); }

TEST(validate_for, asks_the_configuration_about_itself) {
  EXPECT_FALSE(validate_for(lfru::config{}, shape));
  const auto bad = validate_for(lfru::config{.decay = 2}, shape);
  ASSERT_TRUE(bad);
  EXPECT_THAT(bad->message, HasSubstr("lfru decay"));
  EXPECT_FALSE(validate_for(popular::config{.count = 2}, shape));
  EXPECT_TRUE(validate_for(popular::config{.count = -1}, shape));
}

TEST(validate_for, asks_the_configuration_about_the_model) {
  EXPECT_FALSE(validate_for(popularity::config{.profile = {{1, 2, 3, 4, 5, 6, 7, 8}, ""}}, shape));
  const auto bad = validate_for(of_another_model, shape);
  ASSERT_TRUE(bad);
  EXPECT_THAT(bad->message, HasSubstr("layers x experts (8)"));
  EXPECT_TRUE(validate_for(popular::config{.profile = {{1, 2, 3}, ""}}, shape));
  EXPECT_TRUE(validate_for(fetch_lowest::config{}, shape));
}

// One way to construct: the pager asks the same, through decorators and what was chosen at run time.
TEST(validate_for, a_pager_refuses_the_same) {
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

TEST(refuse_value, names_the_number_and_what_is_accepted) {
  const auto bad = refuse_value("pages", std::uint64_t{1} << 63U, "at most 16");
  ASSERT_TRUE(bad);
  EXPECT_EQ(bad->message, "pages = 9223372036854775808, accepted: at most 16");
  EXPECT_EQ(refuse_value("layers", -3, "1..4096")->message, "layers = -3, accepted: 1..4096");
}

}  // namespace
}  // namespace hotset::policy_config_test
