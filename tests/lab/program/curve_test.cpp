// SPDX-License-Identifier: Apache-2.0
#include "run_program.hpp"

namespace curve_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
class curve_command : public hotset_test::traced_command_line {};

TEST_F(curve_command, equals_simulate_at_every_capacity) {
  const auto curve = json_of("curve t.trace --json");
  const auto widest = curve["widest"].get<std::size_t>();
  const auto keys = curve["curves"][0]["misses"].size() - 1;
  for (const auto slots : {widest, (widest + keys) / 2, keys}) {
    const auto run =
        json_of("simulate t.trace --json --eviction lru --slots " + std::to_string(slots));
    EXPECT_EQ(curve["curves"][0]["misses"][slots], run["results"][0]["misses"]) << slots;
  }
}

TEST_F(curve_command, of_each_policy_equals_simulate) {
  const auto curves = json_of("curve t.trace --json --eviction lru,fifo,lfu,belady");
  ASSERT_EQ(curves.size(), 4U);
  for (const auto& curve : curves) {
    const auto slots = curve["widest"].get<std::size_t>() + 1;
    const auto eviction = curve["eviction"].get<std::string>();
    const auto run = json_of("simulate t.trace --json --eviction " + eviction + " --slots " +
                             std::to_string(slots));
    EXPECT_EQ(curve["curves"][0]["misses"][slots], run["results"][0]["misses"]) << eviction;
  }
  EXPECT_THAT(run("curve t.trace --eviction belady").out, HasSubstr("scope shared, belady, exact"));
}

TEST_F(curve_command, takes_lists_and_several_traces) {
  make_trace("b.trace");
  const auto all = json_of("curve t.trace b.trace --scope shared,per-layer --json");
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(all[1]["scope"], "per-layer");
  EXPECT_EQ(all[1]["curves"].size(), all[1]["curves"].back()["layer"].get<std::size_t>() + 1);
  EXPECT_EQ(out_of("curve t.trace --csv --method exact,shards:0.5 --out a.csv"), "");
  const auto text = read("a.csv");
  EXPECT_THAT(text, HasSubstr(",shared,exact,event-atomic,,"));
  EXPECT_THAT(text, HasSubstr(",shared,shards:0.5,event-atomic,,"));
}

TEST_F(curve_command, has_the_bytes_of_its_slots_if_an_expert_has_some) {
  write("n.jsonl", R"({"layer":0,"experts":[0,1]}
{"layer":1,"experts":[0,2]})");
  EXPECT_THAT(out_of("curve n.jsonl --experts 4"), testing::Not(HasSubstr("size")));
  (void)out_of("synth-requests r.jsonl --requests 4");
  EXPECT_THAT(out_of("curve r.jsonl"), testing::Not(HasSubstr("size"))) << "a block is 1 B";
  const std::string sized = "curve n.jsonl --experts 4 --expert-bytes 3MiB --scope per-layer";
  EXPECT_THAT(out_of(sized), HasSubstr("   50.0      4      12.0       4    0.00\n"));
  const auto root = json_of(sized + " --json");
  EXPECT_EQ(root["experts_total"], 8);
  EXPECT_EQ(root["curves"][1]["slot_bytes"], 3 << 20);
  EXPECT_THAT(out_of(sized + " --csv"), HasSubstr(",1,3,2,0.75,9437184,2,4,false\n"));
  EXPECT_EQ(run("curve t.trace --expert-bytes 2MiB").err,
            "hotset: t.trace: note: --expert-bytes replaces the sizes of the trace\n");
}

TEST_F(curve_command, a_seed_is_another_sample) {
  const auto sample = [&](const std::string& seed) {
    return run("curve t.trace --csv --method shards:0.3 --seed " + seed).out;
  };
  EXPECT_EQ(sample("1"), sample("1"));
  EXPECT_NE(sample("1"), sample("2"));
}

TEST_F(curve_command, refuses_unknown_arguments) {
  for (const auto& [options, why] :
       {std::pair("--method shards:2.5", "--method: 'shards:2.5'; accepted: exact, shards:0.01"),
        {"--method exact,", "--method"},
        {"--method shards:1e-12", "--method: shards:1e-12 samples none of "},
        {"--scope global", "--scope"},
        {"--replay deferred", "--replay: 'deferred'; accepted: event-atomic, per-access"},
        {"--eviction lfru", "--eviction: eviction policy 'lfru'"},
        {"--eviction lfu,belady --method shards:0.5",
         "--eviction: shards:0.5 of lfu, accepted: exact, or shards of lru"},
        {"--scope per-layer --method shards:0.5",
         "--method: shards:0.5 of a layer's experts, accepted: exact"},
        {"--seed 3", "--seed: '3'; accepted: with --method shards:RATE"},
        {"--json --csv", "excludes"},
        {"--max-tokens -1", "--max-tokens: '-1'"}})
    refused(std::string("curve t.trace ") + options, 2, {why});
  EXPECT_EQ(run("curve absent.trace").code, 4);
}

}  // namespace
}  // namespace curve_test
