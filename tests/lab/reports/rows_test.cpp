// SPDX-License-Identifier: Apache-2.0
#include "lab/reports/rows.hpp"

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/errors.hpp"

namespace rows_test {
namespace {

using hotset::lab::cell;
using hotset::lab::column;
using hotset::lab::row;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using rows_of = std::vector<row>;

constexpr column columns[] = {
    {"policy", "policy", "policy", {cell::word}},
    {"miss", "miss", "miss", {cell::word}, 1, "", "fetch"},
    {"hits", "hits", "hits"},
    {"share", "share", "share %", {.digits = 1, .scale = 100}},
    {"late", "late", "late", {}, 2, "late"},
    {"cap", "cap", "cap", {.some = true}, 2, hotset::lab::if_named},
};

row sample(const std::string& policy, std::uint64_t hits, row share) {
  return {{"policy", policy}, {"miss", "fetch"}, {"hits", hits},
          {"late", 0},        {"cap", 0},        {"share", std::move(share)}};
}

std::string table(const rows_of& rows, std::vector<std::string> names = {}) {
  return hotset::lab::to_table(columns, rows, {.width = 0, .columns = std::move(names)});
}

TEST(rows, a_table_formats_values_by_column) {
  EXPECT_EQ(table({sample("lru", 5, 0.1234), sample("least_stale", 1234, nullptr)}),
            "policy       hits  share %\n"
            "lru             5     12.3\n"
            "least_stale  1234        -\n");
}

TEST(rows, a_rounded_zero_has_no_sign) {
  EXPECT_THAT(table({sample("lru", 5, -0.0004)}), HasSubstr("      0.0\n"));
  EXPECT_THAT(table({sample("lru", 5, -0.004)}), HasSubstr("     -0.4\n"));
}

TEST(rows, a_column_appears_if_a_row_has_a_value_or_it_is_named) {
  auto late = sample("lru", 5, 0.5);
  late["late"] = 3;
  EXPECT_THAT(table({late, sample("lfu", 5, 0.5)}), HasSubstr("share %  late\n"));
  EXPECT_THAT(table({sample("lfu", 5, 0.5)}), Not(HasSubstr("late")));
  EXPECT_EQ(table({sample("lfu", 5, 0.5)}, {"cap", "hits"}), "cap  hits\n  -     5\n");
}

TEST(rows, common_values_are_printed_once_unless_they_are_defaults) {
  auto a = sample("lru", 5, 0.5);
  auto b = sample("lfu", 6, 0.5);
  a["miss"] = b["miss"] = "drop";
  EXPECT_THAT(table({a, b}), StartsWith("miss drop\npolicy  hits"));
  b["miss"] = "fetch";
  EXPECT_THAT(table({a, b}), StartsWith("policy  miss   hits"));
}

constexpr column ranked[] = {
    {"eviction", "eviction", "eviction", {cell::word}},
    {"hit", "hit", "hit %", {.digits = 2}},
    {"fills", "fills", "fills", {}, 2},
    {"late", "late", "late", {}, 5},
    {"regret", "regret", "regret %", {.digits = 2}, 2},
    {"ttft", "ttft", "TTFT ms", {}, 1, "ttft"},
};
std::string ranked_table(std::size_t width, std::vector<std::string> names = {}) {
  const rows_of rows = {
      {{"eviction", "lru"}, {"hit", 5.1}, {"fills", 123456}, {"late", 1}, {"regret", 1.0}},
      {{"eviction", "least_stale"}, {"hit", 12.34}, {"fills", 7}, {"late", 2}, {"regret", 2.0}}};
  return hotset::lab::to_table(ranked, rows, {.width = width, .columns = std::move(names)});
}

TEST(rows, numbers_are_right_aligned_and_words_left) {
  EXPECT_EQ(ranked_table(0),
            "eviction     hit %   fills  late  regret %\n"
            "lru           5.10  123456     1      1.00\n"
            "least_stale  12.34       7     2      2.00\n");
}

TEST(rows, the_least_important_columns_go_first_and_are_named) {
  EXPECT_THAT(ranked_table(41), AllOf(StartsWith("eviction     hit %   fills  regret %\n"),
                                      HasSubstr("left out: late (no room in 41 columns;")));
  EXPECT_THAT(ranked_table(30), AllOf(StartsWith("eviction     hit %   fills\n"),
                                      HasSubstr("left out: regret, late")));
}

TEST(rows, a_table_fits_any_width_that_its_first_columns_fit) {
  for (std::size_t width = 18; width < 60; ++width) {
    std::istringstream lines(ranked_table(width));
    for (std::string line; std::getline(lines, line);)
      EXPECT_LE(line.size(), std::max<std::size_t>(width, 40)) << width;
  }
  EXPECT_THAT(ranked_table(5), HasSubstr("eviction     hit %\n"));
}

TEST(rows, columns_are_shown_as_they_are_named) {
  EXPECT_EQ(ranked_table(5, {"late", "ttft", "eviction"}),
            "late  TTFT ms  eviction\n"
            "   1        -  lru\n"
            "   2        -  least_stale\n");
  EXPECT_EQ(ranked_table(10, {"all"}), ranked_table(0)) << "whatever says something";
}

TEST(rows, an_unknown_column_is_refused_with_the_one_that_was_meant) {
  try {
    (void)ranked_table(0, {"regrets"});
    FAIL();
  } catch (const hotset::lab::usage_error& error) {
    EXPECT_STREQ(error.what(),
                 "--columns: 'regrets' (did you mean regret?); accepted: eviction, hit, fills, "
                 "late, regret, ttft, all");
  }
}

TEST(rows, a_column_of_bytes_has_one_unit) {
  const auto of = [](const row& first, const row& second) {
    constexpr column one[] = {{"filled", "bytes", "filled", {cell::bytes}}};
    return hotset::lab::to_table(one, rows_of{{{"bytes", first}}, {{"bytes", second}}}, {});
  };
  EXPECT_EQ(of(1536, nullptr), "filled KiB\n       1.5\n         -\n");
  EXPECT_EQ(of(std::uint64_t{9999} << 20U, std::uint64_t{1} << 20U),
            "filled MiB\n    9999.0\n       1.0\n");
  EXPECT_EQ(of(std::uint64_t{10240} << 20U, std::uint64_t{512} << 20U),
            "filled GiB\n      10.0\n       0.5\n");
}

TEST(rows, csv_has_a_field_for_each_key_and_quotes_if_needed) {
  EXPECT_EQ(
      hotset::lab::to_csv({"a", "b", "c"}, rows_of{{{"a", "x,\"y\"\nz"}, {"b", nullptr}, {"c", 1}},
                                                   {{"c", 0.5}, {"a", true}}}),
      "a,b,c\n\"x,\"\"y\"\"?z\",,1\ntrue,,0.5\n");
}

TEST(rows, json_has_a_line_for_each_row) {
  const auto lines = hotset::lab::to_json_lines({{"schema", "s/1"}}, "results",
                                                rows_of{{{"a", 1}}, {{"a", "\xff"}}});
  EXPECT_EQ(lines, "{\"schema\":\"s/1\",\"results\":[\n{\"a\":1},\n{\"a\":\"\xEF\xBF\xBD\"}\n]}");
  EXPECT_EQ(hotset::lab::one_or_array(std::vector{lines}), lines + '\n');
  EXPECT_EQ(hotset::lab::one_or_array(std::vector(2, std::string("x"))), "[\nx,\nx\n]\n");
}

}  // namespace
}  // namespace rows_test
