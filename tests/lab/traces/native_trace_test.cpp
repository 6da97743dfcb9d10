// SPDX-License-Identifier: Apache-2.0
#include "lab/traces/native_trace.hpp"

#include <gtest/gtest.h>

#include "hotset/trace/native_trace_writer.hpp"
#include "lab/traces/synthetic/synthetic.hpp"
#include "trace_samples.hpp"

namespace native_trace_test {
namespace {
using namespace hotset;
using trace_samples::expect_refused;

void expect_equal(const half_array& a, const half_array& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_EQ(a.raw(i), b.raw(i));
}

void expect_equal(const routing_trace& a, const routing_trace& b) {
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.model, b.model);
  EXPECT_EQ(a.source, b.source);
  EXPECT_EQ(a.metadata, b.metadata);
  EXPECT_EQ(a.layers, b.layers);
  EXPECT_EQ(a.experts, b.experts);
  EXPECT_EQ(a.top_k, b.top_k);
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.sequence, b.sequence);
  EXPECT_EQ(a.kind, b.kind);
  EXPECT_EQ(a.ids, b.ids);
  EXPECT_EQ(a.weights, b.weights);
  EXPECT_EQ(a.logits, b.logits);
  EXPECT_EQ(a.adapter, b.adapter);
  EXPECT_EQ(a.token_ids, b.token_ids);
  EXPECT_EQ(a.hidden_width, b.hidden_width);
  EXPECT_EQ(a.prediction_depth, b.prediction_depth);
  expect_equal(a.probabilities, b.probabilities);
  expect_equal(a.hidden, b.hidden);
  expect_equal(a.predictions, b.predictions);
}

TEST(native_trace, a_written_trace_is_read_back) {
  const trace_samples::temporary_folder folder;
  const auto path = folder.path() / "t.safetensors";
  const auto trace = trace_samples::full_trace();
  ASSERT_FALSE(write_native_trace(trace, path.string()));
  const auto read = lab::read_native_trace(path);
  expect_equal(read, trace);
  EXPECT_EQ(read.expert_bytes, trace.expert_bytes);
  std::filesystem::remove(path);
  EXPECT_EQ(read.hidden[0], 2.0F) << "the mapping outlives the name";
}

TEST(native_trace, seeded_traces_survive_and_write_the_same_bytes_again) {
  const trace_samples::temporary_folder folder;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    splitmix64 random(seed);
    synthetic_config config;
    config.layers = static_cast<std::int32_t>(1 + random.below(5));
    config.experts = static_cast<std::int32_t>(4 + random.below(300));
    config.top_k = static_cast<std::int32_t>(1 + random.below(4));
    config.prefill = static_cast<std::uint32_t>(random.below(9));
    config.tokens = static_cast<std::uint32_t>(1 + random.below(40));
    config.weights = random.below(2) == 0;
    config.seed = seed;
    const auto trace = synthetic_trace(config).value();
    const auto first = (folder.path() / "first").string();
    const auto second = (folder.path() / "second").string();
    ASSERT_FALSE(write_native_trace(trace, first));
    const auto read = lab::read_native_trace(first);
    expect_equal(read, trace);
    ASSERT_FALSE(write_native_trace(read, second));
    EXPECT_EQ(trace_samples::read_all(first), trace_samples::read_all(second));
  }
}

/// A native trace of one token whose tensors a test can damage.
struct parts {
  std::string metadata = R"("format":"hotset.trace/1","experts":"4")";
  std::string ids_shape = "[1,1,2]";
  std::string step_dtype = "U32";
  std::string ids{"\x01\x00\xff\xff", 4};
  std::string kind{"\x00", 1};

  [[nodiscard]] std::string bytes() const {
    return trace_samples::safetensors_bytes(
        "{\"__metadata__\":{" + metadata + "},\"step\":{\"dtype\":\"" + step_dtype +
            "\",\"shape\":[1],\"data_offsets\":[0,4]},\"sequence\":{\"dtype\":\"U32\",\"shape\":[1]"
            ","
            "\"data_offsets\":[4,8]},\"ids\":{\"dtype\":\"U16\",\"shape\":" +
            ids_shape +
            ",\"data_offsets\":[8,12]},\"kind\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":["
            "12,13]}}",
        std::string(8, '\0') + ids + kind);
  }
};

TEST(native_trace, accepts_only_the_documented_format) {
  const trace_samples::temporary_folder folder;
  const auto opened = [&](const parts& p) {
    return lab::read_native_trace(folder.write("t", p.bytes()));
  };
  const auto good = opened({});
  EXPECT_EQ(good.ids, (std::vector{1_expert, no_expert}));
  EXPECT_TRUE(good.weights.empty());
  const auto refused = [&](const parts& p, std::string_view said) {
    expect_refused([&] { (void)opened(p); }, {said});
  };
  refused({.metadata = R"("experts":"4")"}, "has no 'format'");
  refused({.metadata = R"("format":"hotset.trace/2","experts":"4")"},
          "accepted: format hotset.trace/1");
  refused({.metadata = R"("format":"hotset.trace/1")"}, "experts is ''");
  refused({.metadata = R"("format":"hotset.trace/1","experts":"4x")"}, "experts is '4x'");
  refused({.metadata = R"("format":"hotset.trace/1","experts":"65536")"}, "accepted: 1..65535");
  refused({.ids_shape = "[2,1]"}, "accepted: U16 [tokens, layers, top_k]");
  refused({.ids_shape = "[2,1,1]"}, "tensor 'step': is U32 [1]; accepted: U32 [2]");
  refused({.step_dtype = "I32"}, "tensor 'step': is I32");
  refused({.ids = std::string("\x04\x00\x00\x00", 4)}, "is 4, accepted: 0..3");
  refused({.kind = "\x07"}, "kind[0] = 7");
}

TEST(native_trace, refuses_a_file_cut_anywhere) {
  const trace_samples::temporary_folder folder;
  const auto path = folder.path() / "whole";
  ASSERT_FALSE(write_native_trace(trace_samples::full_trace(), path.string()));
  const auto bytes = trace_samples::read_all(path);
  for (std::size_t size = 0; size < bytes.size(); size += 7)
    expect_refused(
        [&] { (void)lab::read_native_trace(folder.write("cut", bytes.substr(0, size))); }, {"cut"});
}

TEST(native_trace, refuses_a_weight_that_is_no_number) {
  const trace_samples::temporary_folder folder;
  const auto path = folder.path() / "whole";
  ASSERT_FALSE(write_native_trace(trace_samples::full_trace(), path.string()));
  auto bytes = trace_samples::read_all(path);
  const auto offset = lab::safetensors_file(path).at("weights").offset;
  const auto nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(bytes.data() + offset, &nan, 4);
  expect_refused([&] { (void)lab::read_native_trace(folder.write("nan", bytes)); },
                 {"weight of token 0, layer 0, position 0 is not finite"});
}

}  // namespace
}  // namespace native_trace_test
