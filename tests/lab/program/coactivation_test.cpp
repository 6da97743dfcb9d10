// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "run_program.hpp"

namespace coactivation_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class coactivation : public hotset_test::command_line {
 protected:
  void SetUp() override {
    command_line::SetUp();
    for (const char* name : {"a", "b", "c"}) {
      const auto made = run(std::string("synth ") + name +
                            ".trace --layers 4 --experts 8 --top-k 2 --tokens 60 --sequences 3 "
                            "--zipf 1 --stickiness 0.5 --seed " +
                            std::to_string(name[0]));
      ASSERT_EQ(made.code, 0) << made.err;
    }
  }
};

TEST_F(coactivation, tables_are_learnt_saved_loaded_and_merged) {
  const auto both = json_of("coactivation a.trace b.trace --save both.table --json");
  EXPECT_EQ(both["schema"], "hotset.coactivation/1");
  EXPECT_EQ(both["layers"], 4);
  EXPECT_EQ(both["experts"], 8);
  EXPECT_EQ(both["reach"], 4);
  ASSERT_EQ(both["users"].size(), 2U);
  EXPECT_EQ(both["users"][0]["name"], "a.trace");
  EXPECT_EQ(both["users"][0]["uses"], 3 * 60 * 4 * 2);
  EXPECT_EQ(both["merged"]["uses"], 2 * 3 * 60 * 4 * 2);
  EXPECT_GE(both["merged"]["cap"], both["users"][0]["mean_support"]);
  EXPECT_LE(both["merged"]["cap"], 8);
  EXPECT_EQ(both["evaluation"], nullptr);

  // Two users' saved tables are the table of both, byte for byte.
  ASSERT_EQ(run("coactivation a.trace --save a.table").code, 0);
  ASSERT_EQ(run("coactivation b.trace --save b.table").code, 0);
  const auto merged =
      json_of("coactivation --load a.table --load b.table --save merged.table --json");
  EXPECT_EQ(merged["merged"], both["merged"]);
  EXPECT_EQ(hotset_test::read_text(path("merged.table")),
            hotset_test::read_text(path("both.table")));
  // A saved table goes on learning.
  ASSERT_EQ(run("coactivation b.trace --load a.table --save onward.table").code, 0);
  EXPECT_EQ(hotset_test::read_text(path("onward.table")),
            hotset_test::read_text(path("both.table")));
}

TEST_F(coactivation, a_table_is_judged_on_a_trace_that_it_has_not_seen) {
  const auto found = json_of("coactivation a.trace --evaluate c.trace --json")["evaluation"];
  EXPECT_EQ(found["trace"], "c.trace");
  EXPECT_EQ(found["tokens"], 180);
  EXPECT_EQ(found["places"], 180 * 3 * 2);
  EXPECT_DOUBLE_EQ(found["precision"].get<double>() * 180 * 3 * 2, found["hits"].get<double>());
  EXPECT_GT(found["hits"], 0);
  const auto own = json_of("coactivation a.trace --evaluate a.trace --json")["evaluation"];
  EXPECT_GT(own["hits"], found["hits"]);
  ASSERT_EQ(run("coactivation a.trace --save a.table").code, 0);
  EXPECT_EQ(json_of("coactivation --load a.table --evaluate c.trace --json")["evaluation"], found);
  EXPECT_THAT(run("coactivation a.trace --evaluate c.trace").out,
              HasSubstr("c.trace: 180 tokens, next layer's experts named"));
}

TEST_F(coactivation, caps_cover_as_much_as_they_are_asked_to) {
  const auto cap = [&](const std::string& coverage) {
    return json_of("coactivation a.trace --json --coverage " + coverage)["merged"]["cap"]
        .get<int>();
  };
  EXPECT_LT(cap("0.5"), cap("0.99"));
  EXPECT_EQ(cap("0.01"), 1);
}

TEST_F(coactivation, personal_tables_are_compared_with_the_populations) {
  const auto found = json_of(
      "coactivation a.trace b.trace c.trace --study personal-vs-population --sizes 20,90 --json");
  EXPECT_EQ(found["study"], "personal-vs-population");
  ASSERT_EQ(found["users"].size(), 3U);
  EXPECT_EQ(found["users"][2]["name"], "c.trace");
  EXPECT_EQ(found["users"][2]["tested_tokens"], 90);
  ASSERT_EQ(found["all"].size(), 2U);
  EXPECT_EQ(found["all"][1]["tokens"], 90);
  const auto sequences = json_of(
      "coactivation a.trace b.trace --study personal-vs-population --sizes 20 --users "
      "sequences --json");
  EXPECT_EQ(sequences["users"].size(), 6U);
  const auto text =
      run("coactivation a.trace b.trace --study personal-vs-population --sizes 20 --reach 1");
  EXPECT_EQ(text.code, 0) << text.err;
  for (const char* part : {"2 users of 4 layers x 8 experts, top-2; reach 1", "a.trace", "all"})
    EXPECT_THAT(text.out, HasSubstr(part));
}

TEST_F(coactivation, refuses_what_it_cannot_use) {
  make_trace("other.trace");
  ASSERT_EQ(run("coactivation a.trace --save a.table").code, 0);
  ASSERT_EQ(run("coactivation other.trace --save other.table").code, 0);
  ASSERT_EQ(run("coactivation a.trace --reach 2 --save near.table").code, 0);
  hotset_test::write_text(path("cut.table"),
                          hotset_test::read_text(path("a.table")).substr(0, 999));
  const auto before = files();
  refused("coactivation", 2, {"nothing to learn from; accepted: traces, or --load"});
  refused("coactivation a.trace other.trace", 2,
          {"other.trace: 2 layers x 8 experts, top-2; accepted: 4 layers x 8 experts"});
  refused("coactivation a.trace --evaluate other.trace", 2, {"other.trace: 2 layers"});
  refused("coactivation a.trace --load other.table", 2,
          {"other.table: a table of 2 layers x 8 experts, reach 4, accepted: 4 layers"});
  refused("coactivation --load a.table --load near.table", 2, {"near.table", "reach 2, accepted"});
  refused("coactivation --load a.table --reach 2", 2, {"a.table", "reach 4, accepted"});
  refused("coactivation --load a.trace", 4, {"a.trace: no co_activation table"});
  refused("coactivation --load cut.table --save new.table", 4, {"cut.table: 999 bytes, accepted"});
  refused("coactivation --load absent.table", 4, {"absent.table"});
  refused("coactivation absent.trace", 4, {"absent.trace"});
  refused("coactivation a.trace --save nowhere/a.table", 1, {"nowhere"});
  refused("coactivation a.trace --coverage 0", 2, {"--coverage: '0'"});
  refused("coactivation a.trace --study horoscope --sizes 4", 2,
          {"--study: 'horoscope'; accepted: personal-vs-population"});
  const std::string study = "coactivation a.trace b.trace --study personal-vs-population";
  refused(study, 2, {"--study needs --sizes"});
  refused(study + " --sizes 4,x", 2, {"--sizes: 'x'"});
  refused(study + " --sizes 180", 2, {"0 of 2 users have more than 180 tokens"});
  refused(study + " --sizes 4 --users cats", 2, {"--users: 'cats'; accepted: traces, sequences"});
  refused(study + " --sizes 4 --save t", 2, {"--save excludes --study"});
  refused("coactivation a.trace --sizes 4", 2, {"--sizes requires --study"});
  EXPECT_EQ(files(), before) << "nothing was written";
}

TEST_F(coactivation, simulate_prefetches_by_a_table_without_scores) {
  const auto rows = json_of(
      "simulate a.trace --slots 50% --prefetch no_prefetch,next_layer_top_k --predictor "
      "co-activation --link 1GB/s --json")["results"];
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_GT(rows[1]["prefetch_precision"], 0.25);
  EXPECT_GT(rows[1]["prefetch_hits"], 0);
  refused(
      "simulate a.trace --slots 50% --prefetch next_layer_top_k:depth=3 --predictor "
      "co-activation:reach=2",
      2, {"depth = 3, accepted: 1..2 (reach)"});
  refused("simulate a.trace --predictor crystal", 2,
          {"predictor 'crystal'; accepted: recorded, current-gate, activation-matrix, "
           "co-activation, expert-map, last-routed"});
}

}  // namespace
}  // namespace coactivation_test
