// SPDX-License-Identifier: Apache-2.0
#include "cuda_decode/program/report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cuda_decode::report_test {
namespace {

using testing::HasSubstr;

/// 100 steps in 10 seconds and so on, for the given `tokens_per_second`.
arm_result ran(const arm& what, double tokens_per_second, std::uint64_t bytes_moved = 0) {
  arm_result out;
  out.what = what;
  out.device_bytes = 1024 * static_cast<std::uint64_t>(what.cap);
  out.steps = 100;
  out.seconds = 100 / tokens_per_second;
  out.traffic = {.accesses = 400, .hits = 100, .bytes_moved = bytes_moved};
  return out;
}

decode_report two_caps() {
  decode_report r;
  r.shape = shape_named("small-bf16");
  r.layers_of_model = r.shape.layers;
  r.steps = 100;
  r.plain_rate = 25e9;
  r.turnover_bytes = 4.0 * 48 * 9'437'184;
  r.results = {
      ran({arm_kind::static_offload, 4, 0, decode_mode::eager}, 10),
      ran({arm_kind::hotset, 4, 0, decode_mode::eager}, 15, 50'000'000'000),
      ran({arm_kind::static_offload, 8, 1, decode_mode::eager}, 20),
      ran({arm_kind::hotset, 8, 0, decode_mode::eager}, 50),
      ran({arm_kind::hotset, 16, 0, decode_mode::eager}, 90),
      ran({arm_kind::full_residency, 0, 0, decode_mode::eager}, 100),
  };
  return r;
}

TEST(the_iso_memory_table, sets_each_cap_against_its_own_rival) {
  const auto rows = iso_memory_table(two_caps());
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].baseline, "static, 0 of 3 layers resident, eager");
  EXPECT_EQ(rows[0].hotset, "hotset cap 4, eager");
  EXPECT_EQ(rows[0].device_bytes, 4096U);
  EXPECT_DOUBLE_EQ(rows[0].speedup(), 1.5);
  EXPECT_EQ(rows[1].baseline, "static, 1 of 3 layers resident, eager");
  EXPECT_DOUBLE_EQ(rows[1].speedup(), 2.5);
  EXPECT_EQ(rows[2].baseline, "full residency, eager");
  EXPECT_DOUBLE_EQ(rows[2].speedup(), 0.9);
}

TEST(the_iso_memory_table, omits_rows_whose_rival_did_not_run) {
  auto report = two_caps();
  report.results.erase(report.results.begin());
  report.results.pop_back();
  EXPECT_EQ(iso_memory_table(report).size(), 1U);
}

TEST(a_report, has_the_figures_of_each_arm) {
  const auto report = two_caps();
  const auto& arm = report.results[1];
  EXPECT_DOUBLE_EQ(arm.tokens_per_second(), 15);
  EXPECT_DOUBLE_EQ(arm.bytes_per_step(), 5e8);
  EXPECT_DOUBLE_EQ(arm.bytes_per_second(), 7.5e9);
  EXPECT_DOUBLE_EQ(arm.hit_rate(), 0.25);
  // 25 GB/s over 500 MB a step.
  EXPECT_THAT(
      text_of(arm, report),
      testing::ContainsRegex("hotset cap 4 +eager +15.00 +7.50 +25.0% +4.00 KiB +500.0 +50.0"));
  const auto text = text_after_arms(report);
  EXPECT_THAT(text, HasSubstr("1811.9 MB a step (1.69 GiB), at most 13.8 tokens/s"));
  EXPECT_THAT(text, HasSubstr("bits: 6 runs, all equal"));
}

TEST(a_report, names_differences_and_skipped_arms) {
  auto report = two_caps();
  report.differences = {"this differs from that"};
  report.left_out = {{"full residency (eager)", "needs more"}};
  const auto text = text_after_arms(report);
  EXPECT_THAT(text, HasSubstr("BITS DIFFER: this differs from that\n"));
  EXPECT_THAT(text, testing::Not(HasSubstr("all equal")));
  EXPECT_THAT(text, HasSubstr("full residency (eager): left out: needs more\n"));
  EXPECT_THAT(json_of(report), HasSubstr("\"differences\":[\"this differs from that\"]"));
}

}  // namespace
}  // namespace cuda_decode::report_test
