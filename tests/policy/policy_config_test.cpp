// SPDX-License-Identifier: Apache-2.0
#include "hotset/policy/policy_config.hpp"

#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/eviction/belady.hpp"
#include "hotset/eviction/expert_map_priority.hpp"
#include "hotset/eviction/gate_score.hpp"
#include "hotset/eviction/least_stale.hpp"
#include "hotset/eviction/lfru.hpp"
#include "hotset/eviction/lfu.hpp"
#include "hotset/eviction/popularity.hpp"
#include "hotset/eviction/protect_hot.hpp"
#include "hotset/miss/compute_on_host.hpp"
#include "hotset/miss/fetch_lowest.hpp"
#include "hotset/paging/pager.hpp"
#include "hotset/policy/any/any_eviction_policy.hpp"
#include "hotset/prefetch/popular.hpp"
#include "hotset/routing/cache_aware.hpp"

namespace hotset::policy_config_test {
namespace {

using testing::HasSubstr;

const geometry shape{.layers = 2, .experts = 4, .top_k = 1};
const popularity::config of_another_model{.profile = {{1, 2, 3}, "elsewhere"}};

pool_layout layout() { return pool_layout::shared(shape, 3).value(); }

TEST(validate_for, checks_the_configuration_alone) {
  EXPECT_FALSE(validate_for(lfru::config{}, shape));
  const auto bad = validate_for(lfru::config{.decay = 2}, shape);
  ASSERT_TRUE(bad);
  EXPECT_THAT(bad->message, HasSubstr("lfru decay"));
  EXPECT_FALSE(validate_for(popular::config{.count = 2}, shape));
  EXPECT_TRUE(validate_for(popular::config{.count = -1}, shape));
}

TEST(validate_for, checks_the_configuration_with_the_model) {
  EXPECT_FALSE(validate_for(popularity::config{.profile = {{1, 2, 3, 4, 5, 6, 7, 8}, ""}}, shape));
  const auto bad = validate_for(of_another_model, shape);
  ASSERT_TRUE(bad);
  EXPECT_THAT(bad->message, HasSubstr("layers x experts (8)"));
  EXPECT_TRUE(validate_for(popular::config{.profile = {{1, 2, 3}, ""}}, shape));
  EXPECT_TRUE(validate_for(fetch_lowest::config{}, shape));
}

/// The minimum that every policy has; each test below removes one member.
struct some_traits {};
struct archetype {
  using config = no_options;
  static constexpr std::string_view name = "archetype";
  static constexpr some_traits traits{};
  archetype(const geometry&, const config&) {}
};
struct nameless : archetype {
  using archetype::archetype;
  void name();
};
struct has_no_traits : archetype {
  using archetype::archetype;
  void traits();
};
struct has_a_flag : archetype {
  using archetype::archetype;
  static constexpr bool traits = true;
};
struct changes_its_traits : archetype {
  using archetype::archetype;
  [[maybe_unused]] inline static some_traits traits{};
};
struct unchecked : archetype {
  struct config {};
  unchecked(const geometry&, const config&);
};
struct not_built_for_a_shape : archetype {
  explicit not_built_for_a_shape(const config& c);
};
struct immovable : archetype {
  using archetype::archetype;
  immovable(immovable&&) = delete;
};
template <class P>
constexpr bool is_policy = policy_for<P, geometry, some_traits>;

TEST(policy_for, takes_the_least_and_nothing_that_lacks_a_part_of_it) {
  EXPECT_TRUE(is_policy<archetype>);
  EXPECT_FALSE(is_policy<nameless>);
  EXPECT_FALSE(is_policy<has_no_traits>);
  EXPECT_FALSE(is_policy<has_a_flag>);
  EXPECT_FALSE(is_policy<changes_its_traits>);
  EXPECT_FALSE(is_policy<unchecked>);
  EXPECT_FALSE(is_policy<not_built_for_a_shape>);
  EXPECT_FALSE(is_policy<immovable>);
}

TEST(validate, refuses_values_without_a_name) {
  EXPECT_TRUE(lfu::config{.history = static_cast<lfu_history>(7)}.validate());
  EXPECT_TRUE(expert_map_priority::config{static_cast<use_history>(7)}.validate());
  EXPECT_TRUE(gate_score::config{.accumulate = static_cast<gate_accumulate>(7)}.validate());
  EXPECT_TRUE(least_stale::config{static_cast<stale_order>(7)}.validate());
  EXPECT_TRUE(compute_on_host::config{.split = static_cast<host_split>(7)}.validate());
  EXPECT_TRUE(cache_aware::config{.average = static_cast<logit_average>(7)}.validate());
}

// The pager uses the same check, also through decorators and type-erased policies.
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

TEST(refuse_value, names_the_number_and_the_accepted_range) {
  const auto bad = refuse_value("pages", std::uint64_t{1} << 63U, "at most 16");
  ASSERT_TRUE(bad);
  EXPECT_EQ(bad->message, "pages = 9223372036854775808, accepted: at most 16");
  EXPECT_EQ(refuse_value("layers", -3, "1..4096")->message, "layers = -3, accepted: 1..4096");
}

}  // namespace
}  // namespace hotset::policy_config_test
