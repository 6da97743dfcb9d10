// SPDX-License-Identifier: Apache-2.0
// Sources of the programs' inputs: files, named pipes, standard input.
#include "run_program.hpp"

namespace inputs_test {
namespace {

using testing::HasSubstr;

class inputs : public hotset_test::command_line {
 protected:
  /// A command's output for a file, which must be the same through pipes.
  void same_through_pipes(const std::string& before, const std::string& file,
                          const std::string& after = "") const {
    SCOPED_TRACE(before + " " + file + " " + after);
    const auto want = out_of(before + " " + file + " " + after);
    for (const std::string& command :
         {"cat " + file + " | hotset " + before + " - " + after,
          "hotset " + before + " - " + after + " <" + file,
          "cat " + file + " | hotset " + before + " /dev/stdin " + after,
          "rm -f stdin; mkfifo stdin; timeout 60 cat " + file + " >stdin & hotset " + before +
              " stdin " + after + "; code=$?; wait; exit $code"})
      EXPECT_EQ(out_of_shell(command), want) << command;
  }
};

TEST_F(inputs, every_command_reads_standard_input_and_named_pipes) {
  // The trace stores its name, so that it does not depend on the file's name.
  make_trace("t.trace", "--name demo");
  same_through_pipes("info", "t.trace");
  same_through_pipes("simulate", "t.trace", "--slots 4,8 --csv");
  same_through_pipes("curve", "t.trace");
  same_through_pipes("import", "t.trace", "-");
  same_through_pipes("export --to oracle-general", "t.trace", "-");
}

TEST_F(inputs, other_formats_work_through_pipes_packed_or_not) {
  write("h.csv", "layer,expert\n0,1\n1,2\n0,3\n1,4\n");
  (void)out_of_shell("gzip -k h.csv");
  auto facts = json_of("info --json --top-k 1 h.csv");
  facts["name"] = "stdin";
  for (const std::string file : {"h.csv", "h.csv.gz"})
    EXPECT_EQ(
        nlohmann::json::parse(out_of_shell("cat " + file + " | hotset info --json --top-k 1 -")),
        facts)
        << file;
}

TEST_F(inputs, a_model_is_described_through_a_pipe) {
  write("config.json", R"({"model_type":"mixtral","hidden_size":64,"intermediate_size":128,)"
                       R"("num_hidden_layers":2,"num_local_experts":8,"num_experts_per_tok":2,)"
                       R"("num_attention_heads":4,"num_key_value_heads":2,"vocab_size":1000})");
  const auto piped = out_of_shell("cat config.json | hotset plan --model - --vram 24GiB --json");
  EXPECT_EQ(nlohmann::json::parse(piped, nullptr, false)["cap"],
            json_of("plan --model config.json --vram 24GiB --json")["cap"]);
}

TEST_F(inputs, requests_work_through_pipes) {
  make_trace("t.trace");
  (void)out_of("synth-requests r.jsonl --requests 40");
  const std::string split =
      "simulate-split t.trace --budget 64MiB --kv-token-bytes 1KiB --warmup 0 --burst 4 "
      "--kv-trace ";
  for (const std::string& command :
       {split, std::string("plan --model qwen3-30b-a3b --vram 24GiB --kv-trace ")})
    EXPECT_EQ(shell("cat r.jsonl | hotset " + command + "-").out, out_of(command + "r.jsonl"));
}

TEST_F(inputs, azure_requests_are_read_wherever_requests_are) {
  make_trace("t.trace");
  write("a.csv",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:03.9799600,4808,10\n"
        "2023-11-16 18:17:04.0319600,512,8\n");
  const auto facts = json_of("info --json a.csv");
  EXPECT_EQ(facts["format"], "requests");
  EXPECT_EQ(facts["accesses"], 11) << "blocks of 512 tokens";
  EXPECT_EQ(facts["distinct_experts"], 11);
  EXPECT_THAT(facts["source"].get<std::string>(), HasSubstr("no block comes again"));
  EXPECT_EQ(json_of("info --json --format requests a.csv"), facts);
  (void)out_of("import a.csv a.trace");
  EXPECT_EQ(json_of("info --json a.trace")["accesses"], 11);
  EXPECT_EQ(json_of("simulate a.csv --slots 50% --json")["results"][0]["hits"], 0);
  const auto split = run(
      "simulate-split t.trace --budget 64MiB --kv-token-bytes 1KiB --warmup 0 --burst 4 --kv-trace "
      "a.csv");
  EXPECT_EQ(split.code, 0);
  EXPECT_THAT(out_of("plan --model qwen3-30b-a3b --vram 24GiB --kv-trace a.csv"),
              HasSubstr("note: the requests name no blocks"));
  EXPECT_EQ(split.err,
            "hotset: a.csv: note: the requests name no blocks: each prompt has its own, and "
            "nothing is shared\n");
}

TEST_F(inputs, standard_input_that_is_a_file_is_read_from_its_position) {
  write("h.csv", "not a trace\nlayer,expert\n0,1\n1,2\n");
  EXPECT_THAT(out_of_shell("{ read -r line; hotset info --top-k 1 -; } <h.csv"),
              HasSubstr("layer-expert"));
}

TEST_F(inputs, an_error_of_standard_input_is_one_line) {
  refused("info - </dev/null", 4, {"/dev/stdin: byte 0: the file is empty"});
  refused("info - <&-", 4, {"/dev/stdin: cannot be "});
  refused("info /dev/zero", 4, {"/dev/zero: is a device; accepted: a file or a pipe"});
  refused("info ./-", 4, {});  // a file of that name, which is not there
}

}  // namespace
}  // namespace inputs_test
