// SPDX-License-Identifier: Apache-2.0
#include "run_program.hpp"

namespace curve_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
class curve_command : public hotset_test::command_line {};

TEST_F(curve_command, says_what_simulate_says_at_every_capacity) {
  make_trace("a.trace");
  const auto curve = json_of("curve a.trace --json");
  const auto widest = curve["widest"].get<std::size_t>();
  const auto keys = curve["curves"][0]["misses"].size() - 1;
  for (const auto slots : {widest, (widest + keys) / 2, keys}) {
    const auto run =
        json_of("simulate a.trace --json --eviction lru --slots " + std::to_string(slots));
    EXPECT_EQ(curve["curves"][0]["misses"][slots], run["results"][0]["misses"]) << slots;
  }
}

TEST_F(curve_command, of_each_policy_says_what_simulate_says) {
  make_trace("a.trace");
  const auto curves = json_of("curve a.trace --json --eviction lru,fifo,lfu,belady");
  ASSERT_EQ(curves.size(), 4U);
  for (const auto& curve : curves) {
    const auto slots = curve["widest"].get<std::size_t>() + 1;
    const auto eviction = curve["eviction"].get<std::string>();
    const auto run = json_of("simulate a.trace --json --eviction " + eviction + " --slots " +
                             std::to_string(slots));
    EXPECT_EQ(curve["curves"][0]["misses"][slots], run["results"][0]["misses"]) << eviction;
  }
  EXPECT_THAT(run("curve a.trace --eviction belady").out, HasSubstr("scope shared, belady, exact"));
}

TEST_F(curve_command, takes_lists_and_several_traces) {
  make_trace("a.trace");
  make_trace("b.trace");
  const auto all = json_of("curve a.trace b.trace --scope shared,per-layer --json");
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(all[1]["scope"], "per-layer");
  EXPECT_EQ(all[1]["curves"].size(), all[1]["curves"].back()["layer"].get<std::size_t>() + 1);
  const auto csv = run("curve a.trace --csv --method exact,shards:0.5 --out a.csv");
  EXPECT_EQ(csv.code, 0) << csv.err;
  EXPECT_EQ(csv.out, "");
  const auto text = hotset_test::read_text(path("a.csv"));
  EXPECT_THAT(text, HasSubstr(",shared,exact,event-atomic,,"));
  EXPECT_THAT(text, HasSubstr(",shared,shards:0.5,event-atomic,,"));
}

TEST_F(curve_command, a_seed_is_another_sample) {
  make_trace("a.trace");
  const auto sample = [&](const std::string& seed) {
    return run("curve a.trace --csv --method shards:0.3 --seed " + seed).out;
  };
  EXPECT_EQ(sample("1"), sample("1"));
  EXPECT_NE(sample("1"), sample("2"));
}

TEST_F(curve_command, refuses_what_it_does_not_know) {
  make_trace("a.trace");
  const auto refused = [&](const std::string& options, const char* why) {
    const auto found = run("curve a.trace " + options);
    EXPECT_EQ(found.code, 2) << options;
    EXPECT_THAT(found.err, HasSubstr(why));
    EXPECT_EQ(found.out, "");
  };
  refused("--method shards:2.5", "--method: 'shards:2.5'; accepted: exact, shards:0.01");
  refused("--method exact,", "--method");
  refused("--scope global", "--scope");
  refused("--replay deferred", "--replay: 'deferred'; accepted: event-atomic, per-access");
  refused("--eviction lfru", "--eviction: eviction policy 'lfru'");
  refused("--eviction lfu,belady --method shards:0.5",
          "--eviction: shards:0.5 of lfu, accepted: exact, or shards of lru");
  refused("--scope per-layer --method shards:0.5",
          "--method: shards:0.5 of a layer's experts, accepted: exact");
  refused("--json --csv", "excludes");
  refused("--max-tokens -1", "--max-tokens: '-1'");
  EXPECT_EQ(run("curve absent.trace").code, 4);
}

}  // namespace
}  // namespace curve_test
