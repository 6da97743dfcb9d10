// SPDX-License-Identifier: Apache-2.0
#include "hotset/paging/cliff_guard.hpp"

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hotset::cliff_guard_test {
namespace {

using testing::HasSubstr;

// Hazard 7.
TEST(cliff_guard, names_the_pool_its_slots_and_the_number_that_escapes) {
  const geometry shape{.layers = 30, .experts = 128, .top_k = 6};
  const auto warning = cliff_warning(pool_layout::shared(shape, 174).value());
  ASSERT_TRUE(warning);
  EXPECT_THAT(*warning, HasSubstr("174 slots for 30 layers"));
  EXPECT_THAT(*warning, HasSubstr("use at least 175"));
  EXPECT_FALSE(cliff_warning(pool_layout::shared(shape, 175).value()));
}

TEST(cliff_guard, pools_of_one_layer_have_no_cliff) {
  const geometry shape{.layers = 3, .experts = 8, .top_k = 2};
  EXPECT_FALSE(cliff_warning(pool_layout::per_layer(shape, 2).value()));
}

TEST(cliff_guard, every_size_class_is_looked_at) {
  const geometry shape{.layers = 5, .experts = 8, .top_k = 2, .expert_bytes = {1, 1, 9, 9, 9}};
  const auto warning = cliff_warning(
      pool_layout::shared_by_size_class(shape, std::array<std::int64_t, 2>{3, 4}).value());
  ASSERT_TRUE(warning);
  EXPECT_THAT(*warning, HasSubstr("pool 1"));
}

TEST(cliff_guard, slots_of_all_precisions_count) {
  const geometry shape{.layers = 4,
                       .experts = 8,
                       .top_k = 2,
                       .max_tokens_per_visit = 1,
                       .expert_bytes = {8},
                       .layer_size_class = {},
                       .lower_precisions = {{4}}};
  const auto with = [&](std::int64_t high, std::int64_t low) {
    return cliff_warning(
        pool_layout::shared_by_precision(shape, std::array<std::int64_t, 2>{high, low}).value());
  };
  EXPECT_FALSE(with(3, 4));
  ASSERT_TRUE(with(3, 3));
  EXPECT_THAT(*with(3, 3), testing::HasSubstr("has 6 slots for 4 layers"));
}

}  // namespace
}  // namespace hotset::cliff_guard_test
