// SPDX-License-Identifier: Apache-2.0
// The document's main under another name.
#include <array>
#include <string>

#include <gtest/gtest.h>

#include "hotset/lab/program.hpp"
#include "hotset/policy/policy_config.hpp"
#include "hotset/registry/policy_registry.hpp"

namespace {

#include "policies_1.inc"

#define main own_main
#include "policies_3.inc"
#undef main

TEST(policies, a_main_of_its_own_adds_the_policy_that_is_shown) {
  std::array<std::string, 2> words{"own", "--version"};
  std::array<char*, 3> arguments{words[0].data(), words[1].data(), nullptr};
  EXPECT_EQ(own_main(2, arguments.data()), 0);
  EXPECT_NE(hotset::policies().eviction.find("most_recent"), nullptr);
  EXPECT_EQ(own_main(2, arguments.data()), 1) << "the name is taken";
}

}  // namespace
