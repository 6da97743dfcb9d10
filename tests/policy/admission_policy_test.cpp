// SPDX-License-Identifier: Apache-2.0
#include "hotset/policy/admission_policy.hpp"

#include <gtest/gtest.h>

namespace hotset::admission_policy_test {
namespace {

struct archetype {
  struct config {
    [[nodiscard]] validation validate() const { return std::nullopt; }
  };
  static constexpr std::string_view name = "archetype";
  static constexpr admission_traits traits{};
  archetype(const pool_layout&, const config&) {}
  void admit(const visit_context&, std::span<const expert_use>,
             std::span<std::uint8_t>) const noexcept {}
  void on_use(const expert_use&, bool, bool) noexcept {}
  void on_evict(expert_key, step_id) noexcept {}
};
struct throwing : archetype {
  using archetype::archetype;
  void on_use(const expert_use&, bool, bool) {}
};
struct changes_when_asked : archetype {
  using archetype::archetype;
  void admit(const visit_context&, std::span<const expert_use>, std::span<std::uint8_t>) noexcept {}
};
struct has_no_traits : archetype {
  using archetype::archetype;
  void traits();
};

TEST(admission_policy, takes_the_least_and_nothing_that_lacks_a_part_of_it) {
  EXPECT_TRUE(admission_policy<archetype>);
  EXPECT_FALSE(admission_policy<throwing>);
  EXPECT_FALSE(admission_policy<changes_when_asked>);
  EXPECT_FALSE(admission_policy<has_no_traits>);
}

}  // namespace
}  // namespace hotset::admission_policy_test
