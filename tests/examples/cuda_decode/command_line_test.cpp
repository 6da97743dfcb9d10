// SPDX-License-Identifier: Apache-2.0
// The real program. Where a device is, it proves the kernels against the host's arithmetic; where none is, it says why.
#ifdef CUDA_DECODE_PROGRAM

#include <array>
#include <cstdio>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* skipped = "cuda_decode: skipped: ";

struct outcome {
  int code = -1;
  std::string text;
};
outcome run(const std::string& arguments) {
  const std::string command = "'" + std::string(CUDA_DECODE_PROGRAM) + "' " + arguments + " 2>&1";
  outcome result;
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return result;
  std::array<char, 4096> buffer{};
  for (std::size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    result.text.append(buffer.data(), n);
  const int status = ::pclose(pipe);
  if (WIFEXITED(status)) result.code = WEXITSTATUS(status);
  return result;
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

#endif
