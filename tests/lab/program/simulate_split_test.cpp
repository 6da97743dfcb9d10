// SPDX-License-Identifier: Apache-2.0
#include "run_program.hpp"

namespace simulate_split_test {
namespace {

using testing::HasSubstr;

class simulate_split_command : public hotset_test::command_line {
 protected:
  void SetUp() override {
    command_line::SetUp();
    for (const char* name : {"a", "b"}) {
      const auto made = run(std::string("synth ") + name +
                            ".trace --layers 2 --experts 8 --top-k 2 --tokens 400 --expert-bytes "
                            "1MiB --seed " +
                            std::to_string(name[0]));
      ASSERT_EQ(made.code, 0) << made.err;
    }
    std::string lines;
    for (int r = 0; r < 30; ++r)
      lines += R"({"timestamp":)" + std::to_string(r) +
               R"(,"input_length":1024,"output_length":9,"hash_ids":[)" + std::to_string(r % 7) +
               ',' + std::to_string(20 + r % 11) + "]}\n";
    hotset_test::write_text(path("r.jsonl"), lines);
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
  const auto text = run("simulate-split a.trace b.trace" + rest);
  EXPECT_EQ(text.code, 0) << text.err;
  for (const char* part : {"synthetic > synthetic: 42 bursts", "mv-wsa", "flux-prop"})
    EXPECT_THAT(text.out, HasSubstr(part));
}

TEST_F(simulate_split_command, refuses_what_it_does_not_know) {
  const auto refused = [&](const std::string& options, int code, const char* why) {
    const auto found = run("simulate-split " + options);
    EXPECT_EQ(found.code, code) << options;
    EXPECT_THAT(found.err, HasSubstr(why)) << options;
    EXPECT_EQ(found.out, "");
  };
  refused("a.trace" + rest + " --kv-trace r.jsonl", 2, "--kv-trace: '2 files'; accepted: 1");
  refused("a.trace --kv-trace r.jsonl --kv-token-bytes 1KiB", 2, "--budget is required");
  refused("a.trace --kv-trace r.jsonl --budget 24MiB --kv-token-bytes 0B", 2,
          "--kv-token-bytes: '0B'");
  refused("a.trace --kv-trace r.jsonl --budget 1MiB --kv-token-bytes 1KiB", 3, "accepted: ");
  refused("a.trace" + rest + " --gate 2", 2, "--gate: '2'");
  refused("a.trace" + rest + " --warmup 1000", 2, "all of them warm-up");
  refused("absent.trace" + rest, 4, "absent.trace");
}

}  // namespace
}  // namespace simulate_split_test
