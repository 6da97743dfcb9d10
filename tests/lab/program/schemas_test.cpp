// SPDX-License-Identifier: Apache-2.0
// The JSON of every command matches its schema in docs/schemas.
#include <string>
#include <utility>
#include <vector>

#include "json_schema.hpp"
#include "run_program.hpp"

namespace schemas_test {
namespace {

using hotset::support::json_schema;
using nlohmann::json;

class schemas : public hotset_test::command_line {
 protected:
  static json schema_of(const std::string& name) {
    return json::parse(hotset_test::read_text(HOTSET_SOURCE_DIR "/docs/schemas/" + name + ".json"));
  }
};

TEST_F(schemas, hold_for_the_output_of_every_command) {
  make_trace("t.trace");
  make_trace("s.trace", "--scores");
  (void)out_of("synth-requests r.jsonl --requests 40");
  write("one.json", R"({"experts": {"1": [1], "2": [0, 2]}})");
  const std::string split =
      "simulate-split t.trace --budget 64MiB --kv-token-bytes 1KiB --warmup 0 --burst 4 --kv-trace "
      "r.jsonl";
  const std::string adapters = "adapters plan --base 4x2 --expert-bytes 3MiB one.json";
  const std::vector<std::pair<std::string, std::string>> outputs{
      {"simulate", "simulate t.trace"},
      {"simulate", "simulate t.trace s.trace --budget 4MiB --scope per-layer"},
      {"simulate", "simulate s.trace --slots 50% --link 1GB/s --prefetch next_layer_top_k"},
      {"simulate", "simulate s.trace --compare systems --slots 50% --link 1GB/s"},
      {"simulate", "simulate t.trace --until hit=50%"},
      {"simulate", "simulate t.trace --replay deferred,per-access,expert-by-expert --budget 4MiB"},
      {"rank", "simulate t.trace --rank"},
      {"rank", "simulate t.trace s.trace --rank --slots 50%"},
      {"curve", "curve t.trace --scope shared,per-layer"},
      {"curve", "curve t.trace --method shards:0.5"},
      {"split", split},
      {"plan", "plan --model qwen3-30b-a3b --vram 24GiB"},
      {"plan", "plan --model minimax-m2 --vram 48GiB --devices 4"},
      {"info", "info t.trace"},
      {"info", "info t.trace s.trace"},
      {"history", "history t.trace --out t.history"},
      {"counts", "counts t.trace"},
      {"place", "place t.trace --ranks 4 --score t.trace"},
      {"adapters", adapters},
      {"adapters", adapters + " --budget 60MiB --kv-bytes-per-token 64KiB"}};
  for (const auto& [name, command] : outputs)
    EXPECT_EQ(json_schema(schema_of(name)).trouble(json_of(command + " --json")), "") << command;
}

TEST_F(schemas, notice_a_member_more_or_less_and_another_type) {
  make_trace("t.trace");
  const json_schema schema(schema_of("simulate"));
  const auto good = json_of("simulate t.trace --slots 50% --json");
  const auto changed = [&](const std::string& path, const json& value) {
    auto bad = good;
    bad[json::json_pointer(path)] = value;
    return schema.trouble(bad);
  };
  EXPECT_THAT(changed("/results/0/shape", 1), testing::HasSubstr("$.results[0]: has shape"));
  EXPECT_THAT(changed("/results/0/hits", "7"), testing::HasSubstr("$.results[0].hits: no"));
  EXPECT_THAT(changed("/results/0/hits", -7), testing::HasSubstr("too small"));
  EXPECT_THAT(changed("/results/0/hits", nullptr), testing::HasSubstr("$.results[0].hits: no"));
  EXPECT_THAT(changed("/generator/version", nullptr),
              testing::HasSubstr("$.generator.version: no"));
  EXPECT_THAT(changed("/results/0/windows/0/hits", nullptr),
              testing::HasSubstr("$.results[0].windows[0].hits: no"));
  EXPECT_EQ(changed("/results/0/windows", nullptr), "");
  EXPECT_THAT(changed("/results/0/scope", "mine"), testing::HasSubstr("none of"));
  EXPECT_THAT(changed("/schema", "hotset.simulate/1"), testing::HasSubstr("another constant"));
  auto less = good;
  less["results"][0].erase("misses");
  EXPECT_THAT(schema.trouble(less), testing::HasSubstr("$.results[0]: no misses"));
}

}  // namespace
}  // namespace schemas_test
