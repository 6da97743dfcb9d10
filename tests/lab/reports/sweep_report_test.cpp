// SPDX-License-Identifier: Apache-2.0
#include "lab/reports/sweep_report.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "json_of.hpp"

namespace sweep_report_test {
namespace {

using hotset::lab::run_result;
using hotset::lab::sweep_result;
using testing::HasSubstr;
using testing::Not;

run_result run(std::string eviction, std::uint64_t fills) {
  run_result out;
  out.policies.eviction = std::move(eviction);
  out.scope = "shared";
  out.replay = "event-atomic";
  out.slots = 64;
  out.stats.accesses = 1000;
  out.stats.hits = 1000 - fills;
  out.stats.misses = fills;
  out.stats.fills = fills;
  out.stats.bytes_filled = fills << 20U;
  out.stats.steps = 10;
  out.stats.steps_with_miss = 4;
  out.stats.by_kind[0] = {800, 600};
  out.stats.by_kind[1] = {200, 400 - fills};
  out.stats.per_layer = {{{500, 250}}, {{500, 750 - fills}}};
  return out;
}

sweep_result sweep(std::vector<run_result> runs) {
  return {"demo", 2, 8, 2, 100, 20, std::move(runs)};
}

/// The last word of the line that begins with this word.
std::string last_cell(const std::string& table, const std::string& first) {
  const auto begin = table.find('\n' + first + ' ') + 1;
  const auto line = table.substr(begin, table.find('\n', begin) - begin);
  return line.substr(line.rfind(' ') + 1);
}

TEST(report, json_of_one_sweep_is_an_object) {
  const auto one = sweep({run("lru", 300)});
  const auto text = hotset::lab::to_json_text(std::vector{one});
  EXPECT_EQ(nlohmann::json::parse(text)["results"][0]["miss_free_steps"], 6);
}

TEST(report, json_holds_a_line_for_each_replay) {
  const auto text =
      hotset::lab::to_json_text(std::vector{sweep({run("lru", 300), run("lfu", 250)})});
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
}

TEST(report, names_that_are_no_utf8_do_not_throw) {
  auto odd = sweep({run("lru", 300)});
  odd.name = "a\xff\"b";
  EXPECT_EQ(nlohmann::json::parse(hotset::lab::to_json_text(std::vector{odd}))["trace"]["name"],
            "a\xEF\xBF\xBD\"b");
  EXPECT_NE(hotset::lab::to_table(odd), "");
}

TEST(report, unknown_bytes_are_not_shown) {
  auto one = sweep({run("lru", 300)});
  EXPECT_THAT(hotset::lab::to_table(one), HasSubstr("filled MiB"));
  one.sized = false;
  EXPECT_THAT(hotset::lab::to_table(one), Not(HasSubstr("filled")));
  EXPECT_THAT(hotset::lab::to_table(one, {.width = 0, .columns = {"fills", "filled"}}),
              testing::EndsWith("  300           -\n"));
}

TEST(report, a_found_size_has_its_target_and_both_values) {
  auto one = sweep({run("lru", 300), run("lru", 300), run("belady", 200)});
  one.results[0].found = {"hit=70%", 0.7, 0.65};
  one.results[1].found = {"tpot=20ms", 0.0199996, {}};
  one.results[2].found = {"hit=80%", 0.8, 0.79};
  EXPECT_THAT(
      hotset::lab::to_table(
          one, {.width = 0, .columns = {"target", "share", "reached", "next-smaller", "regret"}}),
      testing::EndsWith("target     share %  reached  next smaller  regret %\n"
                        "hit=70%      400.0   70.000        65.000     50.00\n"
                        "tpot=20ms    400.0   20.000             -     50.00\n"
                        "hit=80%      400.0   80.000        79.000      0.00\n"));
  EXPECT_THAT(hotset::lab::to_table(one), Not(HasSubstr("regret")));
  EXPECT_EQ(hotset::support::json_of(one)["results"][0]["next_smaller"], 0.65);
}

TEST(report, budget_is_null_unless_given) {
  auto one = sweep({run("lru", 300), run("lfu", 300)});
  one.results[1].budget_bytes = 5;
  const auto root = hotset::support::json_of(one);
  EXPECT_TRUE(root["results"][0]["budget_bytes"].is_null());
  EXPECT_EQ(root["results"][1]["budget_bytes"], 5);
}

TEST(report, regret_compares_fills_with_belady) {
  const auto table = hotset::lab::to_table(sweep({run("lru", 300), run("belady", 200)}));
  EXPECT_EQ(last_cell(table, "lru"), "50.00");
  EXPECT_EQ(last_cell(table, "belady"), "0.00");
}

TEST(report, regret_wants_a_belady_of_the_same_cache) {
  auto one = sweep({run("lru", 300), run("belady", 200)});
  one.results[1].slots = 65;
  EXPECT_EQ(last_cell(hotset::lab::to_table(one), "lru"), "-");
  one.results[1].slots = 64;
  one.results[1].budget_bytes = 1;
  EXPECT_EQ(last_cell(hotset::lab::to_table(one), "lru"), "-");
}

TEST(report, regret_of_nothing_filled) {
  EXPECT_EQ(last_cell(hotset::lab::to_table(sweep({run("lru", 0), run("belady", 0)})), "lru"),
            "0.00");
  EXPECT_EQ(last_cell(hotset::lab::to_table(sweep({run("lru", 1), run("belady", 0)})), "lru"), "-");
}

TEST(report, ratios_of_nothing_are_a_dash) {
  auto one = sweep({run("lru", 300)});
  one.results[0].stats.by_kind[0] = {};
  EXPECT_THAT(hotset::lab::to_table(one), HasSubstr("  70.00             -  "));
}

std::size_t widest_line(const std::string& text) {
  std::istringstream lines(text);
  std::size_t most = 0;
  for (std::string line; std::getline(lines, line);) most = std::max(most, line.size());
  return most;
}

/// Runs with a value in every column.
sweep_result full_sweep() {
  auto lru = run("lru", 300);
  lru.policies.prefetch = "next_layer_top_k:overfetch=1.5";
  lru.policies.preset = "specmd-1";
  lru.link = "25GB/s";
  lru.budget_bytes = 5ULL << 30U;
  auto best = run("belady", 200);
  best.policies.admission = "budgeted:fills_per_visit=2";
  best.scope = "per-layer";
  return sweep({lru, best});
}

TEST(report, a_table_fits_the_width_that_it_is_given) {
  const auto all = hotset::lab::to_table(full_sweep());
  EXPECT_GT(widest_line(all), 160U);
  EXPECT_THAT(all, Not(HasSubstr("left out")));
  for (const std::size_t width : {200U, 120U, 100U, 80U, 60U}) {
    const auto table = hotset::lab::to_table(full_sweep(), {.width = width, .columns = {}});
    EXPECT_LE(widest_line(table), width);
    for (const auto* title : {"eviction", "slots", "hit %"}) EXPECT_THAT(table, HasSubstr(title));
  }
  EXPECT_THAT(hotset::lab::to_table(full_sweep(), {.width = 80, .columns = {}}),
              HasSubstr("left out: "));
}

TEST(report, common_values_are_printed_once) {
  const auto table = hotset::lab::to_table(sweep({run("lru", 300), run("lfu", 200)}));
  EXPECT_THAT(table, HasSubstr("visits\nscope shared\neviction  slots  share %"));
  auto two = sweep({run("lru", 300), run("lfu", 200)});
  two.results[1].scope = "per-layer";
  EXPECT_THAT(hotset::lab::to_table(two), HasSubstr("visits\neviction  scope      slots"));
  two.results[0].policies.miss = two.results[1].policies.miss = "drop";
  EXPECT_THAT(hotset::lab::to_table(two), HasSubstr("visits\nmiss drop\neviction"));
}

TEST(report, columns_that_are_named_are_all_that_is_shown) {
  const auto table = hotset::lab::to_table(sweep({run("lru", 300), run("belady", 200)}),
                                           {.width = 10, .columns = {"regret", "scope", "ttft"}});
  EXPECT_THAT(table, testing::EndsWith("visits\nregret %  scope   TTFT ms\n"
                                       "   50.00  shared        -\n"
                                       "    0.00  shared        -\n"));
  for (const auto& name : hotset::lab::report_columns())
    EXPECT_NE(hotset::lab::to_table(full_sweep(), {.width = 0, .columns = {name}}), "");
}

TEST(report, table_gives_each_note_once) {
  auto one = sweep({run("lru", 300), run("lfu", 300)});
  for (auto& r : one.results) r.notes = {"too small"};
  const auto table = hotset::lab::to_table(one);
  EXPECT_THAT(table, testing::EndsWith("note: too small\n"));
  EXPECT_EQ(table.find("note:"), table.rfind("note:"));
}

}  // namespace
}  // namespace sweep_report_test
