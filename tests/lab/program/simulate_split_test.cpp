// SPDX-License-Identifier: Apache-2.0
#include "run_program.hpp"

namespace simulate_split_test {
namespace {

using testing::HasSubstr;

class simulate_split_command : public hotset_test::command_line {
 protected:
  simulate_split_command() {
    const std::string shape = " --layers 2 --experts 8 --top-k 2 --tokens 400 --expert-bytes 1MiB";
    (void)out_of("synth a.trace --seed 97" + shape);
    (void)out_of("synth b.trace --seed 98" + shape);
    std::string lines;
    for (int r = 0; r < 30; ++r)
      lines += R"({"timestamp":)" + std::to_string(r) +
               R"(,"input_length":1024,"output_length":9,"hash_ids":[)" + std::to_string(r % 7) +
               ',' + std::to_string(20 + r % 11) + "]}\n";
    write("r.jsonl", lines);
  }
  const std::string rest =
      " --kv-trace r.jsonl --budget 24MiB --kv-token-bytes 1KiB --context 512 --burst 16";
};

TEST_F(simulate_split_command, compares_the_policies) {
  const auto one = json_of("simulate-split a.trace --json" + rest);
  EXPECT_EQ(one["schema"], "hotset.split/1");
  ASSERT_EQ(one["results"].size(), 1U);
  EXPECT_EQ(one["results"][0]["bursts"], 21);
  EXPECT_EQ(one["results"][0]["outcomes"][0]["policy"], "oracle");
  EXPECT_EQ(one["results"][0]["outcomes"][0]["over_oracle"], 0);
  const auto text = out_of("simulate-split a.trace b.trace" + rest);
  for (const char* part : {"synthetic > synthetic: 42 bursts", "mv-wsa", "flux-prop"})
    EXPECT_THAT(text, HasSubstr(part));
}

TEST_F(simulate_split_command, refuses_unknown_arguments) {
  refused("simulate-split a.trace" + rest + " --kv-trace r.jsonl", 2,
          {"--kv-trace: '2 files'; accepted: 1"});
  const std::string requests = "simulate-split a.trace --kv-trace r.jsonl --kv-token-bytes ";
  refused(requests + "1KiB", 2, {"--budget is required"});
  refused(requests + "0B --budget 24MiB", 2, {"--kv-token-bytes: '0B'"});
  refused(requests + "1KiB --budget 1MiB", 3, {"accepted: "});
  refused("simulate-split a.trace" + rest + " --gate 2", 2, {"--gate: '2'"});
  refused("simulate-split a.trace" + rest + " --warmup 1000", 2, {"all of them warm-up"});
  refused("simulate-split absent.trace" + rest, 4, {"absent.trace"});
}

}  // namespace
}  // namespace simulate_split_test
