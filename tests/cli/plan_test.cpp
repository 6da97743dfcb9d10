// SPDX-License-Identifier: Apache-2.0
#include "run_program.hpp"

namespace {

using testing::HasSubstr;
class plan_command : public hotset_test::command_line {};

TEST_F(plan_command, plans_a_known_model) {
  const auto json = json_of(
      "plan --model qwen3-30b-a3b --vram 24GiB --context 8192 --concurrency 4 --json --host-ram "
      "64GiB");
  EXPECT_EQ(json["schema"], "hotset.plan/1");
  EXPECT_EQ(json["model"]["bytes_per_expert_slot"], 452984832);
  EXPECT_GE(json["kv_tokens"].get<std::uint64_t>(), 4 * 8192U);
  EXPECT_EQ(json["binds"], "floor");
  const auto text = run("plan --model qwen3-30b-a3b --vram 24GiB --out plan.txt");
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_EQ(text.out, "");
  EXPECT_THAT(hotset_test::read_text(path("plan.txt")), HasSubstr("--kv-cache-memory-bytes"));
}

TEST_F(plan_command, takes_a_trace_and_requests) {
  const auto made = run("synth t.trace --layers 16 --experts 64 --top-k 8 --tokens 200 --seed 3");
  ASSERT_EQ(made.code, 0) << made.err;
  hotset_test::write_text(path("requests.jsonl"),
                          R"({"timestamp":0,"input_length":1024,"output_length":9,"hash_ids":[0,1]}
{"timestamp":5,"input_length":1024,"output_length":9,"hash_ids":[0,2]}
)");
  const auto json = json_of(
      "plan --model olmoe-1b-7b --vram 8GiB --trace t.trace --kv-trace requests.jsonl --json");
  EXPECT_GT(json["predicted"]["hit_rate"].get<double>(), 0);
  EXPECT_FALSE(json["predicted"]["held_out_misses"].is_null());
  const auto other = run("plan --model mixtral-8x7b --vram 80GiB --trace t.trace");
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("accepted: 32 x 8, top-2, the model's"));
}

TEST_F(plan_command, refuses_what_it_does_not_know) {
  const auto refused = [&](const std::string& options, int code, const char* why) {
    const auto found = run("plan " + options);
    EXPECT_EQ(found.code, code) << options;
    EXPECT_THAT(found.err, HasSubstr(why)) << options;
    EXPECT_EQ(found.out, "");
  };
  refused("--model gpt-2 --vram 24GiB", 2, "unknown model 'gpt-2', accepted: olmoe-1b-7b");
  refused("--model qwen3-30b-a3b", 2, "--vram is required");
  refused("--model qwen3-30b-a3b --vram 24XB", 2, "--vram: '24XB'; accepted");
  refused("--model qwen3-30b-a3b --vram 24GiB --reserve -1GiB", 2, "--reserve: '-1GiB'; accepted");
  refused("--model qwen3-30b-a3b --vram 24GiB --context 99999999", 2, "the model's own");
  refused("--model qwen3-30b-a3b --vram 24GiB --link 0GB/s", 2, "--link: '0GB/s'");
  refused("--model qwen3-30b-a3b --vram 24GiB --concurrency 0", 2, "--concurrency: '0'");
  refused("--model qwen3-30b-a3b --vram 24GiB --kv-trace absent.jsonl", 4, "absent.jsonl");
  refused("--model qwen3-30b-a3b --vram 4GiB", 3, "accepted: ");
  hotset_test::write_text(path("config.json"), R"({"model_type":"bert"})");
  refused("--model config.json --vram 24GiB", 4, "model_type");
}

}  // namespace
