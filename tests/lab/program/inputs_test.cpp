// SPDX-License-Identifier: Apache-2.0
// Where the programs' inputs come from: files, pipes by name, standard input.
#include "run_program.hpp"

namespace inputs_test {
namespace {

using hotset_test::read_text;
using hotset_test::write_text;
using testing::HasSubstr;

class inputs : public hotset_test::command_line {
 protected:
  /// What a command says of the file, which it also says of the same through pipes.
  void same_through_pipes(const std::string& before, const std::string& file,
                          const std::string& after = "") const {
    SCOPED_TRACE(before + " " + file + " " + after);
    const auto want = run(before + " " + file + " " + after);
    ASSERT_EQ(want.code, 0) << want.err;
    for (const std::string& command :
         {"cat " + file + " | hotset " + before + " - " + after,
          "hotset " + before + " - " + after + " <" + file,
          "cat " + file + " | hotset " + before + " /dev/stdin " + after,
          "rm -f stdin; mkfifo stdin; timeout 60 cat " + file + " >stdin & hotset " + before +
              " stdin " + after + "; code=$?; wait; exit $code"}) {
      const auto result = shell(command);
      EXPECT_EQ(result.code, 0) << command << "\n" << result.err;
      EXPECT_EQ(result.out, want.out) << command;
    }
  }
};

TEST_F(inputs, every_command_reads_standard_input_and_named_pipes) {
  // The trace says its name, so that it does not come from the file's.
  make_trace("t.trace", "--name demo");
  same_through_pipes("info", "t.trace");
  same_through_pipes("simulate", "t.trace", "--slots 4,8 --csv");
  same_through_pipes("curve", "t.trace");
  same_through_pipes("import", "t.trace", "-");
  same_through_pipes("export --to oracle-general", "t.trace", "-");
}

TEST_F(inputs, other_formats_come_through_pipes_too_packed_or_not) {
  write_text(path("h.csv"), "layer,expert\n0,1\n1,2\n0,3\n1,4\n");
  ASSERT_EQ(shell("gzip -k h.csv").code, 0);
  const auto want = run("info --json --top-k 1 h.csv");
  ASSERT_EQ(want.code, 0) << want.err;
  auto facts = nlohmann::json::parse(want.out);
  facts["name"] = "stdin";
  for (const char* file : {"h.csv", "h.csv.gz"}) {
    const auto result = shell(std::string("cat ") + file + " | hotset info --json --top-k 1 -");
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(nlohmann::json::parse(result.out), facts) << file;
  }
}

TEST_F(inputs, a_model_is_described_through_a_pipe) {
  write_text(path("config.json"),
             R"({"model_type":"mixtral","hidden_size":64,"intermediate_size":128,)"
             R"("num_hidden_layers":2,"num_local_experts":8,"num_experts_per_tok":2,)"
             R"("num_attention_heads":4,"num_key_value_heads":2,"vocab_size":1000})");
  const auto want = run("plan --model config.json --vram 24GiB --json");
  ASSERT_EQ(want.code, 0) << want.err;
  const auto piped = shell("cat config.json | hotset plan --model - --vram 24GiB --json");
  EXPECT_EQ(piped.code, 0) << piped.err;
  EXPECT_EQ(nlohmann::json::parse(piped.out, nullptr, false)["cap"],
            nlohmann::json::parse(want.out)["cap"]);
}

TEST_F(inputs, requests_come_through_pipes) {
  make_trace("t.trace");
  ASSERT_EQ(run("synth-requests r.jsonl --requests 40").code, 0);
  const std::string split =
      "simulate-split t.trace --budget 64MiB --kv-token-bytes 1KiB --warmup 0 --burst 4 "
      "--kv-trace ";
  const auto want = run(split + "r.jsonl");
  ASSERT_EQ(want.code, 0) << want.err;
  EXPECT_EQ(shell("cat r.jsonl | hotset " + split + "-").out, want.out);
  const std::string plan = "plan --model qwen3-30b-a3b --vram 24GiB --kv-trace ";
  EXPECT_EQ(shell("cat r.jsonl | hotset " + plan + "-").out, run(plan + "r.jsonl").out);
}

TEST_F(inputs, azure_requests_are_read_wherever_requests_are) {
  make_trace("t.trace");
  write_text(path("a.csv"),
             "TIMESTAMP,ContextTokens,GeneratedTokens\n"
             "2023-11-16 18:17:03.9799600,4808,10\n"
             "2023-11-16 18:17:04.0319600,512,8\n");
  const auto facts = json_of("info --json a.csv");
  EXPECT_EQ(facts["format"], "azure");
  EXPECT_EQ(facts["accesses"], 11) << "blocks of 512 tokens";
  EXPECT_EQ(facts["distinct_experts"], 11);
  EXPECT_THAT(facts["source"].get<std::string>(), HasSubstr("no block comes again"));
  EXPECT_EQ(json_of("info --json --format azure a.csv"), facts);
  ASSERT_EQ(run("import a.csv a.trace").code, 0);
  EXPECT_EQ(json_of("info --json a.trace")["accesses"], 11);
  const auto replayed = json_of("simulate a.csv --slots 50% --json");
  EXPECT_EQ(replayed["results"][0]["hits"], 0);
  const auto split = run(
      "simulate-split t.trace --budget 64MiB --kv-token-bytes 1KiB --warmup 0 --burst 4 --kv-trace "
      "a.csv");
  EXPECT_EQ(split.code, 0);
  const auto plan = run("plan --model qwen3-30b-a3b --vram 24GiB --kv-trace a.csv");
  EXPECT_EQ(plan.code, 0) << plan.err;
  EXPECT_THAT(plan.out, HasSubstr("note: the requests name no blocks"));
  EXPECT_EQ(split.err,
            "hotset: a.csv: note: the requests name no blocks: each prompt has its own, and "
            "nothing is shared\n");
}

TEST_F(inputs, standard_input_that_is_a_file_is_read_from_where_it_stands) {
  write_text(path("h.csv"), "not a trace\nlayer,expert\n0,1\n1,2\n");
  const auto result = shell("{ read -r line; hotset info --top-k 1 -; } <h.csv");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("layer-expert"));
}

TEST_F(inputs, what_is_wrong_with_standard_input_is_one_line) {
  const auto empty = shell("hotset info - </dev/null");
  EXPECT_EQ(empty.code, 4);
  EXPECT_THAT(empty.err, HasSubstr("hotset: /dev/stdin: byte 0: the file is empty"));
  const auto closed = shell("hotset info - <&-");
  EXPECT_EQ(closed.code, 4);
  EXPECT_THAT(closed.err, HasSubstr("hotset: /dev/stdin: cannot be "));
  const auto device = run("info /dev/zero");
  EXPECT_EQ(device.code, 4);
  EXPECT_THAT(device.err, HasSubstr("hotset: /dev/zero: is a device; accepted: a file or a pipe"));
  EXPECT_EQ(run("info ./-").code, 4) << "a file of that name, which is not there";
}

}  // namespace
}  // namespace inputs_test
