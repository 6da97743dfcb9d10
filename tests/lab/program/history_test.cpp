// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <filesystem>
#include <string>

#include "run_program.hpp"

namespace history_test {
namespace {

using testing::HasSubstr;

class history : public hotset_test::command_line {
 protected:
  history() {
    for (const std::string name : {"a", "b"})
      (void)out_of("synth " + name +
                   ".trace --layers 4 --experts 16 --top-k 2 --tokens 100 --sequences 3 "
                   "--zipf 1 --stickiness 0.5 --seed 7");
  }
  std::uint64_t misses(const std::string& eviction) {
    return json_of("simulate b.trace --slots 25% --json --eviction " +
                   eviction)["results"][0]["misses"]
        .get<std::uint64_t>();
  }
};

TEST_F(history, is_learnt_saved_and_started_from) {
  const auto made = json_of("history a.trace --out a.history --json");
  EXPECT_EQ(made["schema"], "hotset.history/1");
  EXPECT_EQ(made["layers"], 4);
  EXPECT_EQ(made["experts"], 16);
  EXPECT_EQ(made["top_k"], 2);
  EXPECT_EQ(made["model"], 0);
  EXPECT_EQ(made["parts"][0]["name"], "a.trace");
  EXPECT_EQ(made["rows"], made["parts"][0]["rows"]);
  EXPECT_EQ(made["bytes"], read("a.history").size());
  EXPECT_LT(misses("similar_steps:from=a.history"), misses("similar_steps"));
  (void)out_of(
      "simulate b.trace --slots 25% --admission least_valuable:from=a.history --miss "
      "compute_on_host");
  (void)out_of(
      "simulate b.trace --slots 25% --prefetch next_layer_top_k --predictor "
      "similar-steps:from=a.history");
}

TEST_F(history, continues_from_another_with_a_share_of_its_rows) {
  const auto a = json_of("history a.trace --out a.history --json");
  const auto both = json_of("history b.trace --from a.history --out both.history --json");
  EXPECT_EQ(both["parts"].size(), 2U);
  EXPECT_EQ(both["rows"], 2 * a["rows"].get<int>());
  const auto half =
      json_of("history b.trace --from a.history --share 0.5 --out half.history --json");
  EXPECT_EQ(half["parts"][0]["rows"], (a["rows"].get<int>() + 1) / 2);
  const auto few = json_of("history a.trace b.trace --rows 256 --out few.history --json");
  EXPECT_EQ(few["rows"], 256);
  EXPECT_THAT(out_of("history --from both.history --out again.history"),
              HasSubstr("both.history: " + both["rows"].dump() + " tokens"));
  EXPECT_EQ(read("again.history"), read("both.history"));
}

TEST_F(history, belongs_to_a_model) {
  (void)out_of("history a.trace --model 5 --out five.history");
  EXPECT_EQ(json_of("history b.trace --from five.history --out t --json")["model"], 5);
  refused("history b.trace --from five.history --model 6 --out six.history", 2,
          {"five.history", "a history of model 5, accepted: 6"});
  EXPECT_FALSE(std::filesystem::exists(path("six.history")));
  refused("simulate b.trace --slots 25% --eviction similar_steps:model=6:from=five.history", 2,
          {"five.history: a history of model 5, accepted: 6"});
}

TEST_F(history, refuses_unusable_input) {
  (void)out_of("synth other.trace --layers 4 --experts 8 --top-k 2 --tokens 60");
  (void)out_of("history other.trace --out other.history");
  refused("history --out x", 2, {"nothing to learn from; accepted: traces, or --from"});
  refused("history a.trace", 2, {"--out"});
  refused("history a.trace --share 0.5 --out x", 2, {"--from"});
  refused("history a.trace other.trace --out x", 2,
          {"other.trace", "4 layers x 8 experts, top-2, accepted: 4 layers x 16 experts, top-2"});
  refused("history a.trace --from other.history --out x", 2, {"a.trace", "accepted: 4 layers x 8"});
  refused("history --from a.trace --out x", 4, {"a.trace", "no routing history"});
  refused("history --from missing --out x", 4, {"missing"});
  refused("history a.trace --rows 300 --out x", 2, {"history rows = 300", "a multiple of 256"});
  refused("simulate b.trace --slots 25% --eviction similar_steps:from=other.history", 2,
          {"other.history: a history of 4 layers x 8 experts"});
  refused("simulate b.trace --slots 25% --eviction similar_steps:from=missing", 2, {"missing"});
  EXPECT_FALSE(std::filesystem::exists(path("x")));
}

}  // namespace
}  // namespace history_test
