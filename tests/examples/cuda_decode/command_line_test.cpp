// SPDX-License-Identifier: Apache-2.0
// The real program. With a device it checks the kernels against host arithmetic; without one it prints the reason.
#ifdef CUDA_DECODE_PROGRAM

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program_run.hpp"

namespace cuda_decode::command_line_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* skipped = "cuda_decode: skipped: ";

using outcome = hotset::support::program_outcome;
outcome run(const std::string& arguments) {
  return hotset::support::run_program("'" + std::string(CUDA_DECODE_PROGRAM) + "' " + arguments +
                                      " 2>&1");
}

TEST(cuda_decode_program, gives_the_hosts_bits_on_a_device) {
  for (const std::string shape : {"small-bf16", "small-fp8", "small-mxfp4"}) {
    const auto got = run("--shape " + shape + " --steps 40 --caps 3,8,all --check-steps 40");
    EXPECT_EQ(got.code, 0) << got.text;
    if (got.text.starts_with(skipped)) GTEST_SKIP() << got.text;
    EXPECT_THAT(got.text, HasSubstr("bits: the host computed 40 steps too, equal"));
  }
}

TEST(cuda_decode_program, pages_the_tiny_model_on_a_device) {
  const auto got = run("tiny --expert-budget 25%");
  EXPECT_EQ(got.code, 0) << got.text;
  if (got.text.starts_with(skipped)) GTEST_SKIP() << got.text;
  EXPECT_THAT(got.text, HasSubstr("byte for byte"));
}

TEST(cuda_decode_program, refuses_bad_arguments_wherever_it_runs) {
  const auto got = run("--caps 7");
  EXPECT_EQ(got.code, 2);
  EXPECT_THAT(got.text, StartsWith("cuda_decode: --caps: '7', accepted: 8 (top_k)..128 or all"));
  EXPECT_EQ(run("--help").code, 0);
}

}  // namespace
}  // namespace cuda_decode::command_line_test

#endif
