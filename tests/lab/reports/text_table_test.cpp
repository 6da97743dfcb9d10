// SPDX-License-Identifier: Apache-2.0
#include "lab/reports/text_table.hpp"

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace text_table_test {
namespace {

using hotset::lab::folded;
using hotset::lab::text_table;
using hotset::lab::usage_error;
using testing::HasSubstr;
using testing::Not;

text_table sample() {
  text_table table;
  table.add({"eviction", "eviction", true, 0, true, {"lru", "least_stale"}});
  table.add({"hit", "hit %", false, 0, true, {"5.10", "12.34"}});
  table.add({"fills", "fills", false, 2, true, {"123456", "7"}});
  table.add({"late", "late", false, 5, true, {"1", "2"}});
  table.add({"regret", "regret %", false, 2, true, {"1.00", "2.00"}});
  table.add({"ttft", "TTFT ms", false, 1, false, {"-", "-"}});
  return table;
}

std::size_t widest_line(const std::string& text) {
  std::istringstream lines(text);
  std::size_t most = 0;
  for (std::string line; std::getline(lines, line);) most = std::max(most, line.size());
  return most;
}

TEST(text_table, numbers_are_right_aligned_and_words_left) {
  EXPECT_EQ(sample().render({}),
            "eviction     hit %   fills  late  regret %\n"
            "lru           5.10  123456     1      1.00\n"
            "least_stale  12.34       7     2      2.00\n");
}

TEST(text_table, the_least_important_columns_go_first_and_are_named) {
  const auto table = sample().render({.width = 41, .columns = {}});
  EXPECT_THAT(table, testing::StartsWith("eviction     hit %   fills  regret %\n"));
  EXPECT_THAT(table, HasSubstr("left out: late (no room in 41 columns;"));
  const auto narrower = sample().render({.width = 30, .columns = {}});
  EXPECT_THAT(narrower, testing::StartsWith("eviction     hit %   fills\n"));
  EXPECT_THAT(narrower, HasSubstr("left out: regret, late"));
}

TEST(text_table, fits_any_width_that_its_first_columns_fit) {
  for (std::size_t width = 18; width < 60; ++width)
    EXPECT_LE(widest_line(sample().render({.width = width, .columns = {}})),
              std::max<std::size_t>(width, 40))
        << width;
  EXPECT_THAT(sample().render({.width = 5, .columns = {}}), HasSubstr("eviction     hit %\n"));
}

TEST(text_table, columns_are_shown_as_they_are_named) {
  EXPECT_EQ(sample().render({.width = 5, .columns = {"late", "ttft", "eviction"}}),
            "late  TTFT ms  eviction\n"
            "   1        -  lru\n"
            "   2        -  least_stale\n");
}

TEST(text_table, all_is_whatever_says_something) {
  EXPECT_EQ(sample().render({.width = 10, .columns = {"all"}}), sample().render({}));
}

TEST(text_table, an_unknown_column_is_refused_with_the_one_that_was_meant) {
  try {
    (void)sample().render({.width = 0, .columns = {"regrets"}});
    FAIL();
  } catch (const usage_error& error) {
    EXPECT_STREQ(error.what(),
                 "--columns: 'regrets' (did you mean regret?); accepted: eviction, hit, fills, "
                 "late, regret, ttft, all");
  }
}

TEST(text_table, long_lines_go_on_below_their_value) {
  const std::string text =
      "note: one two three four five six seven eight nine ten eleven\n"
      "KV cache           one two three four five six seven eight\n"
      "  --a-line-to-paste is not touched however long it may be at all\n"
      "short\n";
  EXPECT_EQ(folded(text, 40),
            "note: one two three four five six seven\n"
            "      eight nine ten eleven\n"
            "KV cache           one two three four\n"
            "                   five six seven eight\n"
            "  --a-line-to-paste is not touched however long it may be at all\n"
            "short\n");
  EXPECT_EQ(folded(text, 0), text);
  EXPECT_EQ(folded("a" + std::string(99, 'b') + " c", 40), "a" + std::string(99, 'b') + "\n  c");
}

TEST(text_table, folding_loses_no_word) {
  const std::string text =
      "note: a bb ccc dddd eeeee ffffff ggggggg hhhhhhhh iiiiiiiii jjjjjjjjjj k\n";
  for (std::size_t width = 40; width < 90; ++width) {
    std::istringstream before(text);
    std::istringstream after(folded(text, width));
    std::vector<std::string> a{std::istream_iterator<std::string>(before), {}};
    std::vector<std::string> b{std::istream_iterator<std::string>(after), {}};
    EXPECT_EQ(a, b) << width;
    EXPECT_LE(widest_line(folded(text, width)), width);
  }
}

}  // namespace
}  // namespace text_table_test
