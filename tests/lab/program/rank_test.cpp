// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "run_program.hpp"

namespace rank_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class rank_command : public hotset_test::traced_command_line {};

TEST_F(rank_command, covers_three_sizes_and_both_scopes_by_default) {
  const auto cells_of = [&](const std::string& more) {
    std::vector<std::string> cells;
    const auto root = json_of("simulate t.trace --rank --json " + more);
    EXPECT_EQ(root["schema"], "hotset.rank/2");
    for (const auto& cell : root["cells"])
      cells.push_back(cell["scope"].get<std::string>() + ' ' + cell["size"].get<std::string>());
    return cells;
  };
  EXPECT_THAT(cells_of("--slots 25%,50%"),
              ElementsAre("shared 25%", "shared 50%", "per-layer 25%", "per-layer 50%"));
  EXPECT_THAT(cells_of("--scope per-layer --budget 8MiB"), ElementsAre("per-layer 8MiB"));
  EXPECT_THAT(cells_of("--scope shared"), ElementsAre("shared 12.5%", "shared 25%", "shared 50%"));
}

TEST_F(rank_command, names_policies_that_the_trace_cannot_replay) {
  const auto table = run("simulate t.trace --rank --slots 50%");
  EXPECT_EQ(table.code, 0);
  EXPECT_EQ(table.err, "");
  for (const char* part :
       {"eviction", "worst", "per-layer", "not replayed: popularity: ", "not replayed: lhu: "})
    EXPECT_THAT(table.out, HasSubstr(part));
  const auto quiet = run("simulate t.trace --rank --slots 50% --csv");
  EXPECT_EQ(quiet.code, 0);
  EXPECT_TRUE(quiet.out.starts_with("trace,eviction,offline,scope,size,"));
  EXPECT_THAT(quiet.err, HasSubstr("not replayed: popularity: "));
}

TEST_F(rank_command, sizes_that_are_too_small_in_a_scope_are_named) {
  (void)out_of("synth small.trace --layers 4 --experts 8 --top-k 2 --tokens 40 --seed 1");
  for (const std::string more : {"", " --slots 12.5%,25%,50%"}) {
    const auto table = out_of("simulate small.trace --rank" + more);
    EXPECT_THAT(table, HasSubstr("shared  per-layer  per-layer\n"));
    EXPECT_THAT(table, HasSubstr("not replayed: scope per-layer, size 12.5%: fewer slots than"));
  }
  const auto sweep = json_of("simulate small.trace --scope shared,per-layer --json");
  EXPECT_EQ(sweep["results"].size(), 5U);
  EXPECT_THAT(sweep["not_replayed"][0].get<std::string>(), HasSubstr("size 12.5%"));
  refused("simulate small.trace --rank --slots 12.5% --scope per-layer", 3,
          {"12.5%", "2 slots or more"});
  refused("simulate small.trace --scope per-layer --slots 12.5%", 3, {"12.5%", "2 slots or more"});
  (void)out_of("synth all.trace --layers 4 --experts 8 --top-k 8 --tokens 4 --seed 1");
  refused("simulate all.trace --scope per-layer", 3, {"12.5%", "8 slots or more"});
}

TEST_F(rank_command, of_several_traces_is_a_table_each_and_one_over_all) {
  make_trace("u.trace", "--name other");
  const auto both = run("simulate t.trace u.trace --rank --slots 50% --scope shared").out;
  EXPECT_THAT(both, HasSubstr("synthetic: 2 layers"));
  EXPECT_THAT(both, HasSubstr("\n\nother: 2 layers"));
  EXPECT_THAT(both, HasSubstr("\n\n2 traces, 2 caches\n"));
  EXPECT_THAT(both, HasSubstr("above belady  synthetic  other\n"));
  const auto root =
      json_of("simulate t.trace u.trace --rank --slots 50% --json --out r.json; cat r.json");
  ASSERT_EQ(root.size(), 3U);
  EXPECT_EQ(root[0]["policies"], root[1]["policies"]);
  EXPECT_EQ(root[0]["generator"]["trace_hash"], root[1]["generator"]["trace_hash"]);
  const auto& first = root[2]["policies"][0];
  EXPECT_EQ(first["eviction"], root[0]["policies"][0]["eviction"]);
  EXPECT_EQ(first["above_belady"].get<int>(),
            2 * root[0]["policies"][0]["above_belady"].get<int>());
}

TEST_F(rank_command, names_caches_that_not_every_trace_has) {
  (void)out_of("synth s.trace --layers 2 --experts 4 --top-k 2 --tokens 20 --seed 1");
  EXPECT_THAT(out_of("simulate t.trace s.trace --rank --slots 25%,50% --scope per-layer"),
              HasSubstr("note: per-layer 25%: not in synthetic#2\n"));
}

TEST_F(rank_command, refuses_options_that_name_other_policies) {
  for (const std::string other :
       {"--eviction lru", "--admission always", "--replay per-access", "--preset fmoe",
        "--compare systems", "--prefetch no_prefetch", "--prefetch-guard none",
        "--prefetch-order nearest", "--predictor last-routed", "--learn-from t.trace",
        "--gate-weights f", "--miss drop", "--routing router_order", "--pre-eviction none",
        "--precision 8:4", "--link 1GB/s", "--columns hit", "--decisions d.jsonl"})
    refused("simulate t.trace --rank " + other, 2,
            {"--rank replays every policy without further options; accepted: without " +
             other.substr(0, other.find(' '))});
  refused("simulate t.trace --rank --slots 1", 3, {"t.trace: ", "2 slots"});
  refused("simulate t.trace --rank --slots 0", 2, {"--slots", "accepted: "});
  refused("simulate t.trace --rank --scope nope", 2, {"--scope", "shared, per-layer"});
  refused("simulate no.trace --rank", 4, {"no.trace"});
  EXPECT_THAT(files(), ElementsAre("t.trace"));
}

}  // namespace
}  // namespace rank_test
