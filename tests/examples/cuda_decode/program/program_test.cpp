// SPDX-License-Identifier: Apache-2.0
// The program over a runtime without a device: exit codes, one line per error, and consistent figures.

#include "cuda_decode/program/program.hpp"

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "case_names.hpp"
#include "fake_machine.hpp"
#include "hotset/version.hpp"
#include "lab/traces/synthetic/synthetic.hpp"
#include "trace_samples.hpp"

namespace cuda_decode::program_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

struct outcome {
  int code;
  std::string out;
  std::string err;
};
outcome run(fake_machine& machine, decode_kernels& kernels, const std::vector<std::string>& words,
            std::function<hotset::routing_trace(const std::string&)> read_trace = {}) {
  std::ostringstream out;
  std::ostringstream err;
  const program_parts parts{machine.api, kernels, machine.graphs, std::move(read_trace), {}};
  const int code = run_program(words, parts, out, err);
  return {code, out.str(), err.str()};
}
outcome run(fake_machine& machine, const std::vector<std::string>& words) {
  return run(machine, machine.kernels, words);
}

struct json_file {
  [[nodiscard]] std::string path() const { return folder.path() / "out.json"; }
  [[nodiscard]] nlohmann::json read() const {
    return nlohmann::json::parse(trace_samples::read_all(path()));
  }
  trace_samples::temporary_folder folder;
};

std::size_t lines(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

TEST(program, compares_all_arms_in_all_modes) {
  for (const auto* const shape : {"small-bf16", "small-fp8", "small-mxfp4"}) {
    SCOPED_TRACE(shape);
    fake_machine machine(pace::random, 5);
    const json_file file;
    const auto got = run(machine, {"--shape", shape, "--steps", "6", "--warmup", "2", "--caps",
                                   "3,all", "--check-steps", "3", "--json", file.path()});
    EXPECT_EQ(got.code, ok) << got.err;
    EXPECT_EQ(got.err, "");
    EXPECT_THAT(got.out, HasSubstr("bits: 11 runs, all equal, hash "));
    EXPECT_THAT(got.out, HasSubstr("bits: the host computed 3 steps too, equal\n"));

    const auto json = file.read();
    EXPECT_EQ(json["shape"], shape);
    EXPECT_EQ(json["bits_equal"], true);
    EXPECT_EQ(json["steps"], 6);
    ASSERT_EQ(json["arms"].size(), 11U);  // static in 2 modes, hotset twice in 3, full in 3
    for (const auto& arm : json["arms"]) {
      EXPECT_EQ(arm["hash"], json["arms"][0]["hash"]);
      EXPECT_EQ(arm["accesses"], 6 * 3 * 2);
      if (arm["arm"] == "full residency") {
        EXPECT_EQ(arm["bytes_moved"], 0);
        EXPECT_EQ(arm["hit_rate"], 1.0);
        EXPECT_EQ(arm["ceiling_tokens_per_second"], 0);
      }
      EXPECT_EQ(arm["bytes_moved"].get<std::uint64_t>() % json["expert_bytes"].get<std::uint64_t>(),
                0U);
    }
    // Hotset in three modes against static offload in the same number of slots, and against full residency.
    ASSERT_EQ(json["iso_memory"].size(), 6U);
    EXPECT_EQ(json["iso_memory"][0]["baseline"], "static, 0 of 3 layers resident, eager");
    EXPECT_EQ(json["iso_memory"][0]["hotset"], "hotset cap 3, eager");
    EXPECT_EQ(json["iso_memory"][2]["baseline"], "static, 0 of 3 layers resident, layer-graphs");
    EXPECT_EQ(json["iso_memory"][2]["hotset"], "hotset cap 3, step-graph");
    EXPECT_EQ(json["iso_memory"][5]["baseline"], "full residency, step-graph");
    EXPECT_THAT(machine.api.violations(), testing::IsEmpty());
    EXPECT_EQ(machine.api.leaks(), 0U);
  }
}

TEST(program, exits_1_with_a_line_if_bits_differ) {
  fake_machine machine;
  int visit = 0;
  bent_kernels bent(machine.kernels, [&](expert_arguments& a) {
    if (++visit == 7) a.bank.stride[0] = 0;
  });
  const json_file file;
  const auto got = run(machine, bent,
                       {"--shape", "small-fp8", "--steps", "3", "--warmup", "1", "--caps", "4",
                        "--modes", "eager", "--json", file.path()});
  EXPECT_EQ(got.code, failure);
  EXPECT_THAT(got.err, StartsWith("cuda_decode: bits differ: "));
  EXPECT_EQ(lines(got.err), 1U);
  EXPECT_THAT(got.out, HasSubstr("BITS DIFFER: "));
  EXPECT_EQ(file.read()["bits_equal"], false);
}

TEST(program, exits_1_if_the_device_differs_from_the_host) {
  fake_machine machine;
  bent_kernels bent(machine.kernels,
                    [&](expert_arguments& a) { std::swap(a.form.gate, a.form.up); });
  const auto got = run(machine, bent,
                       {"--shape", "small-bf16", "--steps", "2", "--warmup", "1", "--caps", "4",
                        "--check-steps", "1"});
  EXPECT_EQ(got.code, failure);
  EXPECT_EQ(got.err, "cuda_decode: bits differ: step 0 on the device differs from the host's\n");
}

TEST(program, without_a_device_prints_the_drivers_reason) {
  fake_machine machine;
  machine.api.fail("cudaGetDeviceCount", 1, hotset::cuda::error_code::insufficient_driver);
  const json_file file;
  const auto got = run(machine, {"--json", file.path()});
  EXPECT_EQ(got.code, ok);
  EXPECT_EQ(got.out, "cuda_decode: skipped: cudaGetDeviceCount: fakeError (35): as told\n");
  EXPECT_EQ(got.err, "");
  EXPECT_EQ(file.read()["skipped"], "cudaGetDeviceCount: fakeError (35): as told");
  EXPECT_EQ(file.read().size(), 1U);

  machine.api.devices = 0;
  EXPECT_EQ(run(machine, {}).out, "cuda_decode: skipped: cudaGetDeviceCount found no device\n");
}

TEST(program, takes_as_many_layers_as_fit_into_host_memory) {
  // A layer of small-bf16 is 16 experts of 12 KiB.
  const std::vector<std::string> words = {"--shape", "small-bf16", "--layers",      "fit",
                                          "--steps", "2",          "--warmup",      "1",
                                          "--modes", "eager",      "--host-budget", "400KiB"};
  fake_machine machine;
  const auto part = run(machine, words);
  EXPECT_EQ(part.code, ok) << part.err;
  EXPECT_THAT(part.out, HasSubstr("2 layers (a part: the model has 3)"));

  auto roomy = words;
  roomy.back() = "1GiB";
  EXPECT_THAT(run(machine, roomy).out, StartsWith("small-bf16: 3 layers, "));

  auto tiny = words;
  tiny.back() = "100KiB";
  const auto none = run(machine, tiny);
  EXPECT_EQ(none.code, infeasible);
  EXPECT_THAT(none.err, HasSubstr("raise --host-budget"));
}

TEST(program, keeps_the_arms_that_are_done_when_a_later_one_fails) {
  const std::vector<std::string> words = {"--shape",  "small-bf16", "--steps", "2",
                                          "--warmup", "1",          "--modes", "eager"};
  fake_machine whole;
  const json_file file;
  auto with_file = words;
  with_file.insert(with_file.end(), {"--json", file.path()});
  ASSERT_EQ(run(whole, with_file).code, ok);
  const auto all = file.read();
  EXPECT_EQ(all["finished"], true);

  // The last arm is the first that takes this many allocations.
  fake_machine machine;
  machine.api.fail("cudaMalloc", whole.api.calls("cudaMalloc"),
                   hotset::cuda::error_code::memory_allocation);
  const auto got = run(machine, with_file);
  EXPECT_EQ(got.code, failure);
  EXPECT_THAT(got.err, HasSubstr("cudaMalloc"));
  EXPECT_EQ(lines(got.err), 1U);
  EXPECT_EQ(machine.api.leaks(), 0U);
  const auto kept = file.read();
  EXPECT_EQ(kept["finished"], false);
  ASSERT_EQ(kept["arms"].size(), all["arms"].size() - 1);
  EXPECT_EQ(kept["arms"][0]["hash"], all["arms"][0]["hash"]);
}

TEST(program, replays_a_trace) {
  fake_machine machine;
  const auto trace = [](const std::string& file) {
    EXPECT_EQ(file, "recorded.trace");
    hotset::synthetic_config config;
    config.layers = 3;
    config.experts = 16;
    config.top_k = 2;
    config.tokens = 5;
    return hotset::synthetic_trace(config).value();
  };
  const std::vector<std::string> words = {"--shape", "small-bf16", "--trace",  "recorded.trace",
                                          "--steps", "4",          "--warmup", "1"};
  const auto got = run(machine, machine.kernels, words, trace);
  EXPECT_EQ(got.code, ok) << got.err;
  EXPECT_THAT(got.out, HasSubstr("routing: trace recorded.trace"));

  auto longer = words;
  longer[5] = "9";
  const auto refused = run(machine, machine.kernels, longer, trace);
  EXPECT_EQ(refused.code, bad_input);
  EXPECT_THAT(refused.err, HasSubstr("5 decoded tokens, accepted: 10 or more"));

  EXPECT_THAT(run(machine, words).err, HasSubstr("built without hotset::lab"));
}

TEST(program, skips_arms_that_do_not_fit_and_says_how_much_is_missing) {
  fake_machine machine;  // 1 GiB of device memory
  const auto host = run(machine, {"--shape", "qwen3-30b-a3b", "--host-budget", "3GB"});
  EXPECT_EQ(host.code, infeasible);
  EXPECT_THAT(host.err, HasSubstr("the weights of 48 layers take 57982058496 bytes"));
  EXPECT_THAT(host.err, HasSubstr("--layers 2 fits"));
  EXPECT_EQ(lines(host.err), 1U);
}

struct refusal {
  std::vector<std::string> words;
  const char* told;
  friend void PrintTo(const refusal& r, std::ostream* out) {
    *out << testing::PrintToString(r.words);
  }
};
class bad_arguments : public testing::TestWithParam<refusal> {};

TEST_P(bad_arguments, are_refused_with_one_line) {
  fake_machine machine;
  const auto got = run(machine, GetParam().words);
  EXPECT_EQ(got.code, usage);
  EXPECT_THAT(got.err, StartsWith("cuda_decode: "));
  EXPECT_THAT(got.err, HasSubstr(GetParam().told));
  EXPECT_EQ(lines(got.err), 1U);
  EXPECT_EQ(got.out, "");
}
const refusal refusals[] = {
    {{"--shape", "gpt-2"}, "--shape: no shape 'gpt-2', accepted: qwen3-30b-a3b, olmoe"},
    {{"--shape"}, "--shape has no value"},
    {{"--fast"}, "unknown argument '--fast'"},
    {{"extra"}, "unknown argument 'extra'"},
    {{"--steps", "0"}, "--steps: '0', accepted: 1..1048576"},
    {{"--steps", "5x"}, "--steps: '5x'"},
    {{"--steps", ""}, "--steps: ''"},
    {{"--warmup", "0"}, "--warmup: '0', accepted: 1.."},
    {{"--zipf", "9"}, "--zipf: '9', accepted: 0..8"},
    {{"--zipf", "nan"}, "--zipf: 'nan'"},
    {{"--stickiness", "-1"}, "--stickiness: '-1', accepted: 0..1"},
    {{"--caps", "16,,32"}, "--caps: '16,,32', accepted: numbers or all"},
    {{"--caps", "7"}, "--caps: '7', accepted: 8 (top_k)..128 or all"},
    {{"--caps", "129"}, "--caps: '129', accepted: 8 (top_k)..128 or all"},
    {{"--modes", "eager,lazy"}, "--modes: 'lazy', accepted: eager, layer-graphs, step-graph"},
    {{"--eviction", "lrru"}, "--eviction: unknown eviction policy 'lrru'"},
    {{"--eviction", "belady"}, "--eviction: 'belady' needs the future"},
    {{"--eviction", "similar_steps:rows=100"},
     "--eviction: history rows = 100, accepted: a multiple"},
    {{"tiny", "--eviction", "lrru"}, "--eviction: unknown eviction policy 'lrru'"},
    {{"--static-fetch", "all"}, "--static-fetch: 'all', accepted: routed, layer"},
    {{"--routing-known", "no"}, "--routing-known: 'no', accepted: in-time, ahead"},
    {{"--host-budget", "64"}, "--host-budget: '64', accepted: a number with B"},
    {{"--host-budget", "64G"}, "--host-budget: '64G', accepted: a number with B"},
    {{"--layers", "49"}, "--layers: '49', accepted: 1..48 (qwen3-30b-a3b)"},
    {{"--layers", "0"}, "--layers: '0', accepted: 1..4096 or fit"},
    {{"--device", "1"}, "--device: '1', accepted: 0..0"},
    {{"--device", "-1"}, "--device: '-1', accepted: 0..1023"},
    {{"--expert-budget", "25%"}, "unknown argument '--expert-budget'"},
    {{"tiny", "--shape", "olmoe"}, "unknown argument '--shape'"},
    {{"tiny", "--tokens", "0"}, "--tokens: '0', accepted: 1.."},
    {{"tiny"}, "built without examples/tiny_moe"},
};
INSTANTIATE_TEST_SUITE_P(program, bad_arguments, testing::ValuesIn(refusals),
                         hotset::support::by_place);

TEST(program, refuses_bad_arguments_without_a_device_too) {
  fake_machine machine;
  machine.api.devices = 0;
  EXPECT_EQ(run(machine, {"--caps", "7"}).code, usage);
  EXPECT_EQ(run(machine, {"--layers", "49"}).code, usage);
}

TEST(program, version_equals_the_library_version) {
  fake_machine machine(pace::random, 1);
  const auto got = run(machine, {"--version"});
  EXPECT_EQ(got.code, 0);
  EXPECT_EQ(got.out, "cuda_decode (hotset) " + std::to_string(HOTSET_VERSION_MAJOR) + "." +
                         std::to_string(HOTSET_VERSION_MINOR) + "." +
                         std::to_string(HOTSET_VERSION_PATCH) + "\n");
}

TEST(program, helps) {
  fake_machine machine;
  const auto got = run(machine, {"tiny", "--help"});
  EXPECT_EQ(got.code, ok);
  EXPECT_THAT(got.out, HasSubstr("Attention, router\n                               and the sum"));
  for (const auto name : shape_names()) EXPECT_THAT(got.out, HasSubstr(std::string(name)));
}

}  // namespace
}  // namespace cuda_decode::program_test
