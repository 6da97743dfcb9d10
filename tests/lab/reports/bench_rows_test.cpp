// SPDX-License-Identifier: Apache-2.0
#include "lab/reports/bench_rows.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/version.hpp"
#include "sim_samples.hpp"
#include "temporary_folder.hpp"

namespace bench_rows_test {
namespace {

using namespace hotset;
using testing::ElementsAre;
using testing::HasSubstr;

class bench_rows : public testing::Test {
 protected:
  /// The message of a file that is refused; "": it is read.
  [[nodiscard]] std::string trouble(const std::string& text) const {
    const auto file = folder_.write("bad.csv", text);
    return support::refusal<trace_error>([&] { (void)lab::read_bench_rows(file); });
  }
  [[nodiscard]] std::vector<lab::bench_row> read(const std::string& text) const {
    return lab::read_bench_rows(folder_.write("rows.csv", text));
  }

  support::temporary_folder folder_;
};

lab::run_result replay(const std::string& eviction, std::uint64_t misses, double seconds) {
  lab::run_result out;
  out.policies.eviction = eviction;
  out.slots = 4;
  out.stats.accesses = 100;
  out.stats.misses = misses;
  out.stats.fills = misses + 1;
  out.host_seconds = seconds;
  return out;
}
lab::sweep_result sweep_of(std::vector<lab::run_result> runs) {
  lab::sweep_result out;
  out.visits = 50;
  out.results = std::move(runs);
  return out;
}
/// A cache of a trace with this name.
lab::bench_row cell_of(const std::string& name, const std::string& size = "25%") {
  auto trace = support::one_layer(8, {{0, 1}, {2, 3}});
  trace.name = name;
  auto cell = lab::bench_row_of(trace);
  cell.scope = "shared";
  cell.size = size;
  return cell;
}
std::vector<lab::bench_row> three_rows(const std::string& name = "hand") {
  std::vector<lab::bench_row> rows;
  lab::add_runs(
      rows, cell_of(name),
      sweep_of({replay("lru", 60, 1e-6), replay("belady", 20, 5e-6), replay("lfu", 50, 2.5e-6)}));
  return rows;
}

TEST_F(bench_rows, has_the_figures_of_a_replay) {
  const auto rows = three_rows();
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[2].eviction, "lfu");
  EXPECT_FALSE(rows[2].offline);
  EXPECT_TRUE(rows[1].offline);
  EXPECT_EQ(rows[2].slots, 4U);
  EXPECT_EQ(rows[2].fills, 51U);
  EXPECT_EQ(rows[2].above_belady, 30);
  EXPECT_EQ(rows[2].host_ns_per_visit, 50U);
  EXPECT_EQ(rows[2].version, HOTSET_VERSION_TEXT);
  EXPECT_EQ(rows[2].trace_hash.size(), 16U);
}

TEST_F(bench_rows, later_runs_are_compared_with_the_same_bound) {
  auto rows = three_rows();
  lab::add_runs(rows, cell_of("hand", "50%"), sweep_of({replay("belady", 10, 0)}));
  lab::add_runs(rows, cell_of("hand"), sweep_of({replay("fifo", 70, 0)}));
  EXPECT_EQ(rows.back().above_belady, 50);
}

TEST_F(bench_rows, are_read_as_they_were_written) {
  const auto rows = three_rows("a, \"b\"");
  const auto text = lab::to_csv(rows);
  EXPECT_TRUE(
      text.starts_with("trace,trace_hash,scope,size,slots,eviction,offline,accesses,"
                       "misses,fills,above_belady,host_ns_per_visit,version\n"));
  const auto again = read(text);
  EXPECT_EQ(lab::to_csv(again), text);
  ASSERT_EQ(again.size(), 3U);
  EXPECT_EQ(again[0].trace, "a, 'b'");
  EXPECT_TRUE(lab::read_bench_rows(folder_.path() / "none.csv").empty());
}

TEST_F(bench_rows, of_two_files_are_merged_by_concatenation) {
  const auto text = lab::to_csv(three_rows());
  auto other = three_rows();
  for (auto& one : other) one.version = "0.0.9";
  EXPECT_EQ(read(text + text).size(), 3U);
  const auto rows = read(text + lab::to_csv(other));
  EXPECT_EQ(rows.size(), 6U);
  EXPECT_EQ(lab::leaderboard_of(rows).cells.size(), 1U);
}

TEST_F(bench_rows, are_found_by_trace_cache_policy_and_version) {
  const auto rows = three_rows();
  EXPECT_TRUE(lab::has_row(rows, rows[1]));
  const auto changed = [&](std::string lab::bench_row::*member) {
    auto wanted = rows[1];
    wanted.*member += "x";
    return lab::has_row(rows, wanted);
  };
  for (const auto member :
       {&lab::bench_row::trace_hash, &lab::bench_row::scope, &lab::bench_row::size,
        &lab::bench_row::eviction, &lab::bench_row::version})
    EXPECT_FALSE(changed(member));
  EXPECT_TRUE(changed(&lab::bench_row::trace)) << "a name identifies nothing";
}

TEST_F(bench_rows, rank_policies_over_all_traces) {
  auto rows = three_rows();
  auto other = three_rows();
  for (auto& one : other) {
    one.trace_hash = "0123456789abcdef";
    one.misses += 10;
    rows.push_back(one);
  }
  const auto board = lab::leaderboard_of(rows);
  EXPECT_THAT(board.traces(), ElementsAre("hand", "hand#2"));
  ASSERT_EQ(board.policies.size(), 3U);
  EXPECT_EQ(board.policies[0].eviction, "lfu");
  EXPECT_EQ(board.policies[0].saved, 0.25);
  EXPECT_EQ(board.policies[0].above_belady, 60);
  EXPECT_EQ(board.policies[0].host_ns, 50.0);
}

TEST_F(bench_rows, refuse_other_files_with_the_line) {
  const auto text = lab::to_csv(three_rows());
  const auto header = text.substr(0, text.find('\n') + 1);
  EXPECT_EQ(read(text).size(), 3U);
  EXPECT_THAT(trouble("step,layer,expert\n"),
              testing::AllOf(HasSubstr("line 1: the header is 'step,layer,expert'"),
                             HasSubstr("accepted: results of hotset bench: trace,trace_hash")));
  EXPECT_THAT(trouble(header + "a,b,c\n"), HasSubstr("line 2: 3 fields"));
  EXPECT_THAT(trouble(header + "t,h,shared,25%,x,lru,false,1,1,1,0,1,0.1.0\n"),
              HasSubstr("line 2: slots is 'x'"));
  EXPECT_THAT(trouble(header + "t,h,shared,25%,4,lru,no,1,1,1,0,1,0.1.0\n"),
              HasSubstr("line 2: offline is 'no'; accepted: true, false"));
  EXPECT_THAT(trouble(header + "t,h,shared,25%,4,lru,false,-1,1,1,0,1,0.1.0\n"),
              HasSubstr("accesses is '-1'"));
}

}  // namespace
}  // namespace bench_rows_test
