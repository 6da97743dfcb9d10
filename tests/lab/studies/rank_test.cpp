// SPDX-License-Identifier: Apache-2.0
#include "lab/studies/rank.hpp"

#include <algorithm>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "json_of.hpp"
#include "lab/reports/rank_report.hpp"
#include "sim_samples.hpp"

namespace rank_test {
namespace {

using namespace hotset;
using support::one_run;
using support::refusal;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using shares = std::vector<std::optional<double>>;

lab::run_result run(const std::string& eviction, const std::string& scope, const std::string& size,
                    std::uint64_t misses) {
  lab::run_result out;
  out.policies.eviction = eviction;
  out.scope = scope;
  out.size = size;
  out.slots = size == "25%" ? 4 : 8;
  out.stats.accesses = 100;
  out.stats.misses = misses;
  return out;
}
/// At 25 % a gap of 40 misses, at 50 % none, per layer one of 10.
lab::sweep_result replayed() {
  lab::sweep_result out;
  out.name = "hand";
  out.layers = 2;
  out.experts = 8;
  out.top_k = 2;
  out.tokens = 25;
  out.visits = 50;
  const std::vector<std::pair<std::string, std::vector<std::uint64_t>>> misses = {
      {"belady", {20, 30, 50}}, {"lru", {60, 30, 60}},
      {"fifo", {70, 35, 60}},   {"next_visit_oracle", {30, 30, 55}},
      {"lfu", {50, 40, 57}},    {"lfru", {40, 31, 60}}};
  for (std::size_t cell = 0; cell < 3; ++cell)
    for (const auto& [name, of_cells] : misses)
      out.results.push_back(
          run(name, cell < 2 ? "shared" : "per-layer", cell == 1 ? "50%" : "25%", of_cells[cell]));
  return out;
}
/// Another trace, without the pools per layer.
lab::sweep_result shared_only() {
  auto out = replayed();
  out.name = "other";
  std::erase_if(out.results, [](const lab::run_result& r) { return r.scope != "shared"; });
  return out;
}
std::vector<std::string> names_of(const lab::leaderboard& ranked) {
  std::vector<std::string> names;
  for (const auto& policy : ranked.policies) names.push_back(policy.eviction);
  return names;
}
const lab::ranked_policy& of(const lab::leaderboard& ranked, const std::string& name) {
  return *std::ranges::find(ranked.policies, name, &lab::ranked_policy::eviction);
}

TEST(rank, a_share_is_of_the_misses_between_lru_and_belady) {
  lab::rank_cell cell;
  cell.accesses = 600;
  cell.lru_misses = 10;
  cell.best_misses = 4;
  EXPECT_EQ(cell.room(), 6U);
  EXPECT_EQ(cell.gap_closed(4), 1.0);
  EXPECT_EQ(cell.gap_closed(7), 0.5);
  EXPECT_EQ(cell.gap_closed(10), 0.0);
  EXPECT_EQ(cell.gap_closed(13), -0.5);
  cell.best_misses = 10;
  EXPECT_EQ(cell.gap_closed(10), std::nullopt);
  cell.best_misses = 11;  // if visits are split, belady minimises fills
  EXPECT_EQ(cell.gap_closed(10), std::nullopt);
  EXPECT_EQ(cell.room(), 0U);
}

TEST(rank, a_room_below_one_percent_of_the_accesses_has_no_share) {
  lab::rank_cell cell;
  cell.lru_misses = 10;
  cell.best_misses = 4;
  cell.accesses = 600;
  EXPECT_TRUE(cell.has_room());
  cell.accesses = 601;
  EXPECT_FALSE(cell.has_room());
  EXPECT_EQ(cell.gap_closed(4), std::nullopt);
  cell.accesses = 0;
  cell.best_misses = 10;
  EXPECT_FALSE(cell.has_room());
}

/// A cell with 4 % room, in which lfru loses half, and one with .4 %, which it wins fully.
TEST(rank, a_cell_of_chance_decides_nothing) {
  lab::sweep_result sweep;
  for (const auto& [name, first, second] :
       {std::tuple("belady", 460, 496), std::tuple("lru", 500, 500), std::tuple("lfu", 520, 496)}) {
    for (const auto& [size, misses] : {std::pair("25%", first), std::pair("50%", second)}) {
      sweep.results.push_back(run(name, "shared", size, static_cast<std::uint64_t>(misses)));
      sweep.results.back().stats.accesses = 1000;
    }
  }
  const auto ranked = lab::rank_sweep(std::move(sweep));
  EXPECT_THAT(names_of(ranked), ElementsAre("lru", "lfu", "belady"));
  EXPECT_EQ(of(ranked, "lfu").gap_closed, (shares{-0.5, std::nullopt}));
  EXPECT_EQ(of(ranked, "lfu").mean, -0.5);
  EXPECT_DOUBLE_EQ(*of(ranked, "lfu").saved, -16.0 / 44) << "misses of both";
  EXPECT_THAT(lab::to_table(ranked), HasSubstr("belady avoids misses of less than 1 %"));
}

TEST(rank, the_most_misses_saved_are_first_and_the_offline_ones_are_last) {
  const auto ranked = lab::rank_sweep(replayed());
  ASSERT_EQ(ranked.cells.size(), 3U);
  EXPECT_EQ(ranked.cells[2].scope, "per-layer");
  EXPECT_EQ(ranked.cells[2].lru_misses, 60U);
  EXPECT_EQ(ranked.cells[2].best_misses, 50U);
  EXPECT_THAT(names_of(ranked),
              ElementsAre("lfru", "lfu", "lru", "fifo", "next_visit_oracle", "belady"));
  // The table shows the other cells' shares.
  EXPECT_EQ(of(ranked, "lfu").gap_closed, (shares{0.25, std::nullopt, 0.3}));
  EXPECT_DOUBLE_EQ(*of(ranked, "lfu").mean, 0.275);
  EXPECT_EQ(of(ranked, "lfu").saved, 0.26);
  EXPECT_EQ(of(ranked, "lfu").worst, 0U);
  EXPECT_EQ(of(ranked, "lfu").best, 2U);
  EXPECT_EQ(of(ranked, "lfu").above_belady, 30 + 10 + 7);
  EXPECT_TRUE(of(ranked, "belady").offline);
  EXPECT_TRUE(of(ranked, "next_visit_oracle").offline);
  EXPECT_FALSE(of(ranked, "lfu").offline);
}

TEST(rank, a_policy_missing_in_a_cell_is_behind_those_of_all_cells) {
  auto sweep = replayed();
  std::erase_if(sweep.results, [](const lab::run_result& r) {
    return r.policies.eviction == "lfu" && r.scope == "per-layer";
  });
  const auto ranked = lab::rank_sweep(std::move(sweep));
  EXPECT_EQ(of(ranked, "lfu").gap_closed, (shares{0.25, std::nullopt, std::nullopt}));
  EXPECT_EQ(of(ranked, "lfu").misses[2], std::nullopt);
  EXPECT_EQ(of(ranked, "lfu").mean, 0.25);
  EXPECT_EQ(of(ranked, "lfu").saved, 0.25) << "of the room of that cell alone";
  EXPECT_EQ(of(ranked, "lfu").replayed_cells(), 2U);
  EXPECT_THAT(names_of(ranked),
              ElementsAre("lfru", "lru", "fifo", "lfu", "next_visit_oracle", "belady"));
}

TEST(rank, without_a_gap_there_is_no_mean) {
  auto sweep = replayed();
  std::erase_if(sweep.results, [](const lab::run_result& r) { return r.size != "50%"; });
  const auto ranked = lab::rank_sweep(std::move(sweep));
  for (const auto& policy : ranked.policies) {
    EXPECT_EQ(policy.mean, std::nullopt);
    EXPECT_EQ(policy.saved, std::nullopt);
    EXPECT_EQ(policy.worst, std::nullopt);
    EXPECT_EQ(policy.best, std::nullopt);
  }
  EXPECT_THAT(names_of(ranked),
              ElementsAre("lru", "fifo", "lfu", "lfru", "next_visit_oracle", "belady"));
}

TEST(rank, needs_both_ends_of_the_gap) {
  for (const std::string end : {"lru", "belady"}) {
    auto sweep = replayed();
    std::erase_if(sweep.results, [&](const lab::run_result& r) {
      return r.policies.eviction == end && r.size == "50%";
    });
    EXPECT_EQ(refusal<lab::usage_error>([&] { (void)lab::rank_sweep(std::move(sweep)); }),
              "a ranking of shared 50% without " + end + ", accepted: with lru and belady");
  }
}

TEST(rank, candidates_are_online_policies_that_the_trace_supports) {
  auto trace = support::random_trace(1, {});
  const auto names = [&](std::vector<std::string>& left_out) {
    std::vector<std::string> out;
    for (const auto& set : lab::rank_candidates(trace, left_out)) out.push_back(set.eviction);
    return out;
  };
  std::vector<std::string> left_out;
  const auto all = names(left_out);
  EXPECT_THAT(left_out, ElementsAre(HasSubstr("popularity: it goes by a profile of the replayed")));
  for (const auto& row : lab::known_policies().eviction.rows()) {
    const bool told = row.name == "belady" || row.name == "next_visit_oracle";
    const bool wanted = told || (!row.traits.needs_future && row.name != "popularity");
    EXPECT_EQ(std::ranges::count(all, row.name), wanted ? 1 : 0) << row.name;
  }
  trace.weights.clear();
  left_out.clear();
  EXPECT_THAT(names(left_out), Not(Contains("gate_score")));
  EXPECT_THAT(left_out, Contains("gate_score: it goes by gate weights, and the trace has none; "
                                 "accepted: a trace that recorded them"));
}

// One pool of 3: A B, C D, A C. LRU evicts A and copies 5; belady and the next-visit oracle evict B.
TEST(rank, of_a_hand_walked_trace) {
  const auto trace = support::one_layer(8, {{0, 1}, {2, 3}, {0, 2}});
  lab::sweep_request request;
  request.sizes = {lab::size_request::parse_slots("3"), lab::size_request::parse_slots("100%")};
  const auto ranked = lab::rank_policies(trace, request);
  ASSERT_EQ(ranked.cells.size(), 2U);
  EXPECT_EQ(ranked.cells[0].size, "3");
  EXPECT_EQ(ranked.cells[0].slots, 3U);
  EXPECT_EQ(ranked.cells[0].lru_misses, 5U);
  EXPECT_EQ(ranked.cells[0].best_misses, 4U);
  EXPECT_EQ(of(ranked, "next_visit_oracle").gap_closed, (shares{1.0, std::nullopt}));
  EXPECT_EQ(of(ranked, "lru").gap_closed, (shares{0.0, std::nullopt}));
  EXPECT_THAT(ranked.sweep.not_replayed, Contains(HasSubstr("lhu")));
}

TEST(rank, misses_equal_those_of_single_replays) {
  const auto trace = support::random_trace(4, {.layers = 3, .experts = 12, .most_tokens = 3});
  lab::sweep_request request;
  request.sizes = {lab::size_request::parse_slots("25%"), lab::size_request::parse_slots("50%")};
  request.scopes = {cache_scope::shared, cache_scope::per_layer};
  const auto ranked = lab::rank_policies(trace, request);
  ASSERT_EQ(ranked.cells.size(), 4U);
  ASSERT_GT(ranked.policies.size(), 10U);
  for (const auto& policy : ranked.policies)
    for (std::size_t c = 0; c < ranked.cells.size(); ++c) {
      const auto& cell = ranked.cells[c];
      EXPECT_EQ(policy.misses[c],
                one_run(trace, {policy.eviction, cell.scope, cell.size}).stats.misses)
          << policy.eviction << ' ' << cell.scope << ' ' << cell.size;
    }
}

TEST(rank, json_has_the_promised_names) {
  const auto ranked = lab::rank_sweep(replayed());
  const auto text = lab::to_json_text(std::span(&ranked, 1));
  const auto root = nlohmann::ordered_json::parse(text);
  EXPECT_EQ(root["trace"]["name"], "hand");
  EXPECT_EQ(root["cells"][2].dump(),
            R"({"scope":"per-layer","size":"25%","slots":4,"budget_bytes":null,"accesses":100,)"
            R"("lru_misses":60,"belady_misses":50,"room":10,"share":0.25})");
  EXPECT_EQ(root["policies"][0].dump(),
            R"({"eviction":"lfru","offline":false,"misses":[40,31,60],"gap_closed":[0.5,null,0.0],)"
            R"("saved":0.4,"mean_gap_closed":0.25,"above_belady":31,)"
            R"("worst":{"scope":"per-layer","size":"25%","gap_closed":0.0},)"
            R"("best":{"scope":"shared","size":"25%","gap_closed":0.5}})");
  const std::vector<lab::ranking> two{ranked, lab::rank_sweep(shared_only())};
  const auto both = nlohmann::ordered_json::parse(lab::to_json_text(two));
  ASSERT_EQ(both.size(), 3U);
  EXPECT_EQ(both[0], root);
  EXPECT_EQ(both[2]["traces"].dump(), R"(["hand","other"])");
  EXPECT_EQ(both[2]["not_in_every_trace"].dump(), R"(["per-layer 25%: not in other"])");
  EXPECT_EQ(both[2]["cells"][3].dump(),
            R"({"trace":"other","scope":"shared","size":"25%","slots":4,"budget_bytes":null,)"
            R"("accesses":100,"lru_misses":60,"belady_misses":20,"room":40})");
  EXPECT_EQ(both[2]["policies"][0]["worst"].dump(),
            R"({"trace":"hand","scope":"per-layer","size":"25%","gap_closed":0.0})");
}

TEST(rank, csv_has_a_line_for_each_policy_in_each_cell) {
  const auto ranked = lab::rank_sweep(replayed());
  std::istringstream lines(lab::to_csv(std::span(&ranked, 1)));
  std::vector<std::string> found;
  for (std::string line; std::getline(lines, line);) found.push_back(line);
  ASSERT_EQ(found.size(), 1U + 6 * 3);
  EXPECT_EQ(found[0],
            "trace,eviction,offline,scope,size,slots,budget_bytes,accesses,misses,gap_closed,"
            "mean_gap_closed,saved,share,layers,experts,above_belady,worst,best");
  EXPECT_EQ(found[1], "hand,lfru,false,shared,25%,4,,100,40,0.5,0.25,0.4,0.25,2,8,31,0.0,0.5");
  EXPECT_EQ(found[2], "hand,lfru,false,shared,50%,8,,100,31,,0.25,0.4,0.5,2,8,31,0.0,0.5");
  EXPECT_EQ(found[18], "hand,belady,true,per-layer,25%,4,,100,50,1.0,1.0,1.0,0.25,2,8,0,1.0,1.0");
}

TEST(rank, the_table_has_a_column_for_each_cell) {
  auto sweep = replayed();
  sweep.not_replayed = {"lhu: too few"};
  EXPECT_EQ(
      lab::to_table(lab::rank_sweep(sweep)),
      "hand: 2 layers x 8 experts, top-2, 25 tokens, 50 visits\n"
      "% of the misses between lru (0) and belady (100) that are avoided\n"
      "eviction           saved  worst   best  shared  shared  per-layer\n"
      "                                           25%     50%        25%\n"
      "lfru                40.0    0.0   50.0    50.0       -        0.0\n"
      "lfu                 26.0   25.0   30.0    25.0       -       30.0\n"
      "lru                  0.0    0.0    0.0     0.0       -        0.0\n"
      "fifo               -20.0  -25.0    0.0   -25.0       -        0.0\n"
      "next_visit_oracle   70.0   50.0   75.0    75.0       -       50.0\n"
      "belady             100.0  100.0  100.0   100.0       -      100.0\n"
      "room, misses          50                    40       0         10\n"
      "saved: of all misses between lru and belady, summed over the caches; worst, best: of one "
      "cache\n"
      "caches where belady avoids misses of less than 1 % of the accesses (-) are not worst or "
      "best\n"
      "next_visit_oracle knows each layer's next visit, belady all visits: to compare with\n"
      "not replayed: lhu: too few\n");
  std::erase_if(sweep.results, [](const lab::run_result& r) { return r.scope != "shared"; });
  EXPECT_THAT(lab::to_table(lab::rank_sweep(sweep)),
              HasSubstr("avoided, scope shared\n"
                        "eviction           saved  worst   best    25%  50%\n"
                        "lfru                50.0   50.0   50.0   50.0    -\n"));
  for (auto& one : sweep.results) one.size = one.size == "25%" ? "4" : "8";
  EXPECT_THAT(lab::to_table(lab::rank_sweep(sweep)), HasSubstr("best  4 (25.0%)  8 (50.0%)\n"));
}

TEST(rank, several_traces_are_ranked_by_the_misses_of_all) {
  const std::vector<lab::ranking> two{lab::rank_sweep(replayed()), lab::rank_sweep(shared_only())};
  const auto board = lab::rank_traces(two);
  ASSERT_EQ(board.cells.size(), 5U);
  EXPECT_THAT(board.traces(), ElementsAre("hand", "other"));
  EXPECT_DOUBLE_EQ(*of(board, "lfru").saved, 40.0 / 90);
  EXPECT_EQ(board.saved(of(board, "lfru"), "other"), 0.5);
  EXPECT_EQ(of(board, "lfru").above_belady, 52);
  EXPECT_EQ(of(board, "lfru").worst, 2U);
  EXPECT_THAT(lab::uneven_cells(board), ElementsAre("per-layer 25%: not in other"));
  const auto table = lab::to_table(board);
  EXPECT_THAT(table, HasSubstr("2 traces, 5 caches\n"));
  EXPECT_THAT(table,
              HasSubstr("eviction           saved  worst   best  above belady   hand  other\n"
                        "lfru                44.4    0.0   50.0            52   40.0   50.0\n"
                        "lfu                 25.6   25.0   30.0            87   26.0   25.0\n"));
  EXPECT_THAT(table, HasSubstr("note: per-layer 25%: not in other\n"));
}

TEST(rank, a_policy_that_one_trace_cannot_replay_is_behind_those_of_all) {
  auto other = shared_only();
  std::erase_if(other.results,
                [](const lab::run_result& r) { return r.policies.eviction == "lfru"; });
  const std::vector<lab::ranking> two{lab::rank_sweep(replayed()),
                                      lab::rank_sweep(std::move(other))};
  const auto board = lab::rank_traces(two);
  EXPECT_THAT(names_of(board),
              ElementsAre("lfu", "lru", "fifo", "lfru", "next_visit_oracle", "belady"));
  EXPECT_EQ(board.saved(of(board, "lfru"), "other"), std::nullopt);
  EXPECT_THAT(lab::to_table(board), HasSubstr("above belady  caches "));
}

TEST(rank, traces_of_one_name_have_labels_of_their_own) {
  EXPECT_THAT(lab::trace_labels({"a", "b", "a", "a"}), ElementsAre("a", "b", "a#2", "a#3"));
  const std::vector<lab::ranking> two{lab::rank_sweep(replayed()), lab::rank_sweep(replayed())};
  EXPECT_THAT(lab::rank_traces(two).traces(), ElementsAre("hand", "hand#2"));
}

TEST(rank, knows_which_policies_see_the_future) {
  for (const auto* offline : {"belady", "next_visit_oracle", "popularity"})
    EXPECT_TRUE(lab::sees_future(offline)) << offline;
  for (const auto* online : {"lru", "lfu:history=resident", "popularity:profile=a.json"})
    EXPECT_FALSE(lab::sees_future(online)) << online;
}

}  // namespace
}  // namespace rank_test
