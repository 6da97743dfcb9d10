// SPDX-License-Identifier: Apache-2.0
#include "hotset/policy/predictor.hpp"

#include <gtest/gtest.h>

#include "hotset/predict/co_activation.hpp"

namespace hotset::predictor_test {
namespace {

/// A minimal type that satisfies the concept; each test below removes one member.
struct archetype {
  struct config {
    std::int32_t depth = 1;
    [[nodiscard]] validation validate() const { return std::nullopt; }
  };
  static constexpr std::string_view name = "archetype";
  static constexpr predictor_traits traits{};
  static result<archetype> create(const geometry&, const config&) { return archetype{}; }
  forecast expect(const routing_view&, std::span<const float>, std::int32_t) noexcept { return {}; }
};
struct shallow : archetype {
  struct config {
    [[nodiscard]] validation validate() const { return std::nullopt; }
  };
  static result<shallow> create(const geometry&, const config&) { return shallow{}; }
};
struct throwing : archetype {
  static result<throwing> create(const geometry&, const config&) { return throwing{}; }
  forecast expect(const routing_view&, std::span<const float>, std::int32_t) { return {}; }
};
struct makes_another : archetype {};
struct has_no_traits : archetype {
  static result<has_no_traits> create(const geometry&, const config&) { return has_no_traits{}; }
  void traits();
};
struct takes_no_routers : archetype {
  static constexpr predictor_traits traits{.needs_routers = true};
  static result<takes_no_routers> create(const geometry&, const config&) {
    return takes_no_routers{};
  }
};
struct is_told_no_width : archetype {
  static constexpr predictor_traits traits{.needs_hidden = true};
  static result<is_told_no_width> create(const geometry&, const config&) {
    return is_told_no_width{};
  }
};

TEST(predictor, takes_the_least_and_nothing_that_lacks_a_part_of_it) {
  EXPECT_TRUE(predictor<archetype>);
  EXPECT_TRUE(predictor<co_activation>);
  EXPECT_FALSE(predictor<shallow>);
  EXPECT_FALSE(predictor<throwing>);
  EXPECT_FALSE(predictor<makes_another>);
  EXPECT_FALSE(predictor<has_no_traits>);
  EXPECT_FALSE(predictor<takes_no_routers>);
  EXPECT_FALSE(predictor<is_told_no_width>);
}

}  // namespace
}  // namespace hotset::predictor_test
