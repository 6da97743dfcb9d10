// SPDX-License-Identifier: Apache-2.0
#include "lab/reports/generator.hpp"

#include <array>

#include <gtest/gtest.h>

namespace generator_test {
namespace {

using hotset::lab::generator_of;
using hotset::lab::set_command;

TEST(generator, names_the_command_as_it_can_be_pasted) {
  const std::array words{"/some/folder/hotset", "simulate", "a b.trace", "it's", "--slots=25%", ""};
  set_command(static_cast<int>(words.size()), words.data());
  const auto made = generator_of(0x1F);
  EXPECT_EQ(made["command"], R"(hotset simulate 'a b.trace' 'it'\''s' --slots=25% '')");
  EXPECT_EQ(made["trace_hash"], "000000000000001f");
}

TEST(generator, a_resumed_command_is_the_uninterrupted_one) {
  const std::array words{"hotset",  "simulate",   "--resume", "a folder",
                         "t.trace", "--resume=b", "--json"};
  set_command(static_cast<int>(words.size()), words.data());
  EXPECT_EQ(generator_of({})["command"], "hotset simulate t.trace --json");
}

TEST(generator, is_null_where_nothing_is_known) {
  set_command(0, nullptr);
  EXPECT_TRUE(generator_of({})["command"].is_null());
  EXPECT_TRUE(generator_of({})["trace_hash"].is_null());
}

}  // namespace
}  // namespace generator_test
