// SPDX-License-Identifier: Apache-2.0
#include "hotset/core/text/names.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace names_test {
namespace {

using hotset::did_you_mean;
using hotset::nearest_name;
const std::vector<std::string> policies{"lru",         "lfu",    "fifo",
                                        "least_stale", "belady", "belady_bypass"};

TEST(names, a_slip_of_the_fingers_is_found) {
  EXPECT_EQ(nearest_name("least_stlae", policies), "least_stale");  // exchanged
  EXPECT_EQ(nearest_name("leaststale", policies), "least_stale");   // one left out
  EXPECT_EQ(nearest_name("lruu", policies), "lru");                 // one too many
  EXPECT_EQ(nearest_name("fify", policies), "fifo");                // another letter
}

TEST(names, case_and_dashes_do_not_count) {
  EXPECT_EQ(nearest_name("LRU", policies), "lru");
  EXPECT_EQ(nearest_name("Least-Stale", policies), "least_stale");
}

TEST(names, the_closest_name_wins_and_the_first_of_equals) {
  EXPECT_EQ(nearest_name("belady_bypas", policies), "belady_bypass");
  EXPECT_EQ(nearest_name("beladi", policies), "belady");
  EXPECT_EQ(nearest_name("lxu", policies), "lru");
}

TEST(names, a_name_cut_short_is_found_behind_a_misspelt_one) {
  EXPECT_EQ(nearest_name("least", policies), "least_stale");
  EXPECT_EQ(nearest_name("le", policies), "");
  EXPECT_EQ(nearest_name("abcd", std::vector<std::string>{"abcdefgh", "abce"}), "abce");
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
