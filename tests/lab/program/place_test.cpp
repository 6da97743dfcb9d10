// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "run_program.hpp"

namespace place_test {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

class place : public hotset_test::command_line {
 protected:
  place() {
    for (const std::string name : {"a", "b"})
      (void)out_of("synth " + name +
                   ".trace --layers 3 --experts 16 --top-k 2 --tokens 60 --sequences 20 --zipf 1 "
                   "--stickiness 0.5 --seed " +
                   std::to_string(name[0]));
  }
  static constexpr const char* ranks = " --ranks 4 --redundant 4 --running 32 --steps 60";
};

TEST_F(place, writes_a_placement_that_is_better_than_the_engines) {
  const auto made = json_of(std::string("place a.trace --out p.json --json") + ranks);
  ASSERT_EQ(made["placements"].size(), 3U);
  const auto& start = made["placements"][0];
  const auto& packed = made["placements"][1];
  const auto& own = made["placements"][2];
  EXPECT_EQ(own["placement"], "hotset");
  EXPECT_EQ(start["moved"], 0);
  EXPECT_LT(packed["excess"], start["excess"]);
  EXPECT_LT(own["excess"], packed["excess"]);
  EXPECT_EQ(made["scored_on"], "placed");
  const auto file = json::parse(read("p.json"));
  EXPECT_EQ(file["schema"], "hotset.placement/1");
  EXPECT_EQ(file["physical_to_logical_map"].size(), 3U);
  for (const auto& layer : file["physical_to_logical_map"]) {
    EXPECT_EQ(layer.size(), 20U);
    EXPECT_EQ(layer.get<std::set<int>>().size(), 16U);
  }
}

TEST_F(place, is_the_same_for_any_number_of_threads) {
  (void)out_of(std::string("place a.trace --out one.json --jobs 1") + ranks);
  (void)out_of(std::string("place a.trace --out many.json --jobs 5") + ranks);
  EXPECT_EQ(read("one.json"), read("many.json"));
}

TEST_F(place, continues_from_a_file_of_any_format) {
  for (const std::string format : {"vllm", "sglang", "tensorrt-llm", "deepseek"}) {
    const auto dense = format == "sglang" || format == "tensorrt-llm" ? " --dense-layers 2" : "";
    (void)out_of("place a.trace --out p --format " + format + dense + ranks);
    const auto again =
        json_of("place a.trace --from p --move-cost 1 --json" + std::string(dense) + ranks);
    EXPECT_EQ(again["placements"][0]["placement"], "--from");
    EXPECT_EQ(again["placements"][2]["moved"], 0) << format;
  }
}

TEST_F(place, moves_fewer_experts_than_packing_anew) {
  (void)out_of(std::string("place a.trace --out p.json") + ranks);
  const auto next =
      json_of(std::string("place b.trace --from p.json --score b.trace --json") + ranks);
  EXPECT_EQ(next["scored_on"], "later");
  EXPECT_LT(next["placements"][2]["moved"], next["placements"][1]["moved"]);
  EXPECT_LT(next["placements"][2]["excess"], next["placements"][0]["excess"]);
  EXPECT_THAT(
      out_of(std::string("place b.trace --from p.json --score a.trace --score b.trace") + ranks),
      HasSubstr("of a.trace and 1 more\n"));
}

TEST_F(place, sends_tokens_to_fewer_ranks_for_a_price) {
  const auto ranks_of = [&](const std::string& option) {
    return json_of("place a.trace --json" + option + ranks)["placements"][2]["ranks_per_token"]
        .get<double>();
  };
  EXPECT_LT(ranks_of(" --copies 0.2"), ranks_of(""));
}

TEST_F(place, takes_the_traces_own_steps) {
  const auto made = json_of("place a.trace --as decode:8 --ranks 4 --steps 50 --json");
  EXPECT_EQ(made["steps"], 50);
  EXPECT_EQ(made["redundant"], 0);
}

TEST_F(place, counts_dense_layers_where_the_engine_does) {
  (void)out_of(std::string("place a.trace --out s.json --format sglang --dense-layers 2") + ranks);
  const auto rows = json::parse(read("s.json"))["physical_to_logical_map"];
  ASSERT_EQ(rows.size(), 5U);
  for (std::size_t slot = 0; slot < 20; ++slot) EXPECT_EQ(rows[1][slot], slot % 16);
  (void)out_of(std::string("place a.trace --out t.yaml --format tensorrt-llm --dense-layers 2") +
               ranks);
  EXPECT_THAT(read("t.yaml"), StartsWith("num_slots: 20\ninitial_global_assignments:\n  2: ["));
  EXPECT_THAT(read("t.yaml"), HasSubstr("layer_updates_per_iter: 0"));
}

TEST_F(place, writes_steps_for_an_engine_that_sees_sums_alone) {
  (void)out_of(std::string("place a.trace --profile p.safetensors") + ranks);
  const auto file = read("p.safetensors");
  EXPECT_THAT(file, HasSubstr("hotset.placement-profile/1"));
  EXPECT_THAT(file, HasSubstr(R"("dtype":"U32","shape":[60,3,16])"));
}

TEST_F(place, refuses_in_one_line_and_writes_nothing) {
  const auto refused = [&](const std::string& words, int code) {
    const auto out = run("place " + words);
    EXPECT_EQ(out.code, code) << words;
    EXPECT_EQ(std::ranges::count(out.err, '\n'), 1) << out.err;
    EXPECT_FALSE(std::filesystem::exists(path("x.json"))) << words;
    return out.err;
  };
  EXPECT_THAT(refused("a.trace --ranks 5 --out x.json", 2),
              HasSubstr("a sum that the ranks divide, such as redundant = 4"));
  EXPECT_THAT(refused("a.trace --ranks 4 --redundant 60 --out x.json", 2),
              HasSubstr("no rank holds one twice"));
  EXPECT_THAT(refused("a.trace --ranks 4 --out x.json --format yaml", 2),
              HasSubstr("accepted: vllm, sglang, tensorrt-llm, deepseek"));
  EXPECT_THAT(refused("a.trace --ranks 4 --move-cost 0.1 --out x.json", 2), HasSubstr("--from"));
  EXPECT_THAT(refused("a.trace --ranks 4 --dense-layers 3", 2), HasSubstr("with --out or --from"));
  (void)out_of("synth other.trace --layers 3 --experts 8 --top-k 2 --tokens 60");
  EXPECT_THAT(refused("a.trace other.trace --ranks 4 --out x.json", 2),
              HasSubstr("accepted: traces of one model, 3 layers x 16 experts, top-2"));
  EXPECT_THAT(refused("a.trace --score other.trace --ranks 4 --out x.json", 2),
              HasSubstr("--score: 3 layers x 8 experts"));
}

TEST_F(place, refuses_a_damaged_start) {
  (void)out_of(std::string("place a.trace --out p.json --format sglang --dense-layers 1") + ranks);
  const auto refused = [&](const std::string& more) {
    const auto out = run("place a.trace --from broken" + more + ranks);
    EXPECT_EQ(out.code, 4) << out.err;
    return out.err;
  };
  const auto good = json::parse(read("p.json"));
  EXPECT_THAT((write("broken", good.dump()), refused("")), HasSubstr("4 layers; accepted: 3"));
  auto spoilt = good;
  spoilt["physical_to_logical_map"].erase(3);
  EXPECT_THAT((write("broken", spoilt.dump()), refused(" --dense-layers 1")),
              HasSubstr("3 layers; accepted: 4, of which 1 are dense"));
  spoilt = good;
  for (auto& e : spoilt["physical_to_logical_map"][2])
    if (e == 5) e = 6;
  EXPECT_THAT((write("broken", spoilt.dump()), refused(" --dense-layers 1")),
              HasSubstr("layer 2: no slot holds expert 5"));
  spoilt = good;
  spoilt["physical_to_logical_map"][1][0] = -1;
  EXPECT_THAT((write("broken", spoilt.dump()), refused(" --dense-layers 1")),
              HasSubstr("layer 1: slot 0 holds expert -1"));
  spoilt["physical_to_logical_map"] = "rows";
  EXPECT_THAT((write("broken", spoilt.dump()), refused(" --dense-layers 1")),
              HasSubstr("an array of rows"));
  EXPECT_THAT((write("broken", "{}"), refused("")), HasSubstr("no placement"));
  EXPECT_THAT((write("broken", "initial_global_assignments:\n  x: [1]\n"), refused("")),
              HasSubstr("line 2"));
  EXPECT_THAT((write("broken", good.dump().substr(0, 90)), refused("")), HasSubstr("broken"));
}

}  // namespace
}  // namespace place_test
