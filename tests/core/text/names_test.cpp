// SPDX-License-Identifier: Apache-2.0
#include "hotset/core/text/names.hpp"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace names_test {
namespace {

using hotset::did_you_mean;
using hotset::nearest_name;
const std::vector<std::string> policies{"lru",         "lfu",    "fifo",
                                        "least_stale", "belady", "belady_bypass"};

TEST(names, the_closest_name_is_found_and_the_first_of_equals) {
  const std::pair<const char*, const char*> all[] = {{"least_stlae", "least_stale"},  // exchanged
                                                     {"leaststale", "least_stale"},  // one left out
                                                     {"lruu", "lru"},                // one too many
                                                     {"fify", "fifo"},  // another letter
                                                     {"LRU", "lru"},
                                                     {"Least-Stale", "least_stale"},
                                                     {"belady_bypas", "belady_bypass"},
                                                     {"beladi", "belady"},
                                                     {"lxu", "lru"},
                                                     {"least", "least_stale"},  // cut short
                                                     {"le", ""}};
  for (const auto& [text, name] : all) EXPECT_EQ(nearest_name(text, policies), name) << text;
  EXPECT_EQ(nearest_name("abcd", std::vector<std::string>{"abcdefgh", "abce"}), "abce")
      << "a name cut short is behind a misspelt one";
}

TEST(names, nothing_close_is_nothing) {
  for (const auto* text : {"", "x", "frobnicate", "mru_with_ageing", "ab"})
    EXPECT_EQ(did_you_mean(text, policies), "") << text;
  EXPECT_EQ(nearest_name(std::string(100'000, 'l'), policies), "");
}

TEST(names, a_refusal_names_all_of_it_in_one_line) {
  EXPECT_EQ(hotset::unknown_name("unknown policy", "lr\nu", policies, ", or none").message,
            "unknown policy 'lr?u' (did you mean lru?); accepted: lru, lfu, fifo, least_stale, "
            "belady, belady_bypass, or none");
}

}  // namespace
}  // namespace names_test
