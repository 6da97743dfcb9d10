// SPDX-License-Identifier: Apache-2.0
#include "hotset/trace/native_trace_writer.hpp"

#include <array>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "trace_samples.hpp"

namespace native_trace_writer_test {
namespace {
using namespace hotset;

TEST(native_trace_writer, the_header_is_padded_and_the_bytes_depend_on_the_trace_alone) {
  const trace_samples::temporary_folder folder;
  const auto trace = trace_samples::full_trace();
  const auto a = (folder.path() / "a").string();
  const auto b = (folder.path() / "b").string();
  ASSERT_FALSE(write_native_trace(trace, a));
  ASSERT_FALSE(write_native_trace(trace, b));
  const auto bytes = trace_samples::read_all(a);
  EXPECT_EQ(bytes, trace_samples::read_all(b));
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  EXPECT_EQ((8 + length) % 64, 0U);
  const auto header = bytes.substr(8, length);
  for (const auto* part :
       {R"("format":"hotset.trace/1")", R"("experts":"4")",
        R"("ids":{"dtype":"U16","shape":[3,2,2])", R"("step":{"dtype":"U32","shape":[3])",
        R"("kind":{"dtype":"U8")", R"("probabilities":{"dtype":"F16","shape":[3,2,4])",
        R"("predictions":{"dtype":"F16","shape":[3,2,1,4])", R"("adapter":{"dtype":"I16")",
        R"("token_ids":{"dtype":"I32","shape":[3])", R"("expert_bytes":{"dtype":"U64","shape":[2])",
        R"(toy \"quoted\" é)"})
    EXPECT_NE(header.find(part), std::string::npos) << part << " in " << header;
  EXPECT_EQ(folder.files(), 2U) << "no temporary file is left";
}

TEST(native_trace_writer, on_failure_nothing_changes) {
  const trace_samples::temporary_folder folder;
  const auto path = folder.write("trace", "earlier");
  auto trace = trace_samples::full_trace();
  trace.ids[0] = 4_expert;
  const auto bad = write_native_trace(trace, path.string());
  ASSERT_TRUE(bad);
  EXPECT_NE(bad->message.find("accepted: 0..3"), std::string::npos);
  EXPECT_EQ(trace_samples::read_all(path), "earlier");
  EXPECT_EQ(folder.files(), 1U);
  EXPECT_TRUE(
      write_native_trace(trace_samples::full_trace(), (folder.path() / "no" / "folder").string()));
  // A target that is a non-empty folder cannot be replaced: the temporary file is removed.
  std::filesystem::create_directories(folder.path() / "taken" / "inside");
  EXPECT_TRUE(write_native_trace(trace_samples::full_trace(), (folder.path() / "taken").string()));
  EXPECT_EQ(folder.files(), 2U);
}

TEST(native_trace_writer, a_failed_write_keeps_the_earlier_file) {
  const trace_samples::temporary_folder folder;
  const auto path = folder.write("trace", "earlier");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{512, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto bad = write_native_trace(trace_samples::full_trace(), path.string());
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  ASSERT_TRUE(bad);
  EXPECT_NE(bad->message.find("cannot be written"), std::string::npos) << bad->message;
  EXPECT_EQ(trace_samples::read_all(path), "earlier");
  EXPECT_EQ(folder.files(), 1U);
}

TEST(native_trace_writer, ids_have_16_bits) {
  const trace_samples::temporary_folder folder;
  routing_trace trace;
  trace.layers = trace.top_k = 1;
  trace.experts = 65536;
  trace.step = trace.sequence = {0};
  trace.kind = {request_class::decode};
  trace.ids = {65534_expert};
  const auto path = (folder.path() / "t").string();
  const auto bad = write_native_trace(trace, path);
  ASSERT_TRUE(bad);
  EXPECT_NE(bad->message.find("experts = 65536, accepted: 1..65535"), std::string::npos);
  trace.experts = 65535;
  EXPECT_FALSE(write_native_trace(trace, path));
}

TEST(native_trace_writer, text_that_is_not_utf8_is_written_as_json_all_the_same) {
  std::string out;
  detail::append_json_string(out, "a\xff\xc3\n\"\\\xe2\x82\xac\xed\xa0\x80");
  EXPECT_EQ(out, "\"a??\\u000a\\\"\\\\\xe2\x82\xac???\"");
}

std::string json_of(const std::string& bytes) {
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  EXPECT_EQ(length, bytes.size() - 8);
  EXPECT_EQ(bytes.size() % 64, 0U);
  return bytes.substr(8, bytes.find_last_not_of(' ') + 1 - 8);
}

TEST(safetensors_header, arrays_lie_one_behind_the_other_in_the_order_in_which_they_were_added) {
  safetensors_header header;
  header.add("b", "F32", std::array<std::uint64_t, 2>{2, 3}, 4);
  header.add("a", "U8", std::array<std::uint64_t, 1>{5}, 1);
  header.add("none", "F16", std::array<std::uint64_t, 2>{0, 7}, 2);
  header.add("one", "F16", std::span<const std::uint64_t>(), 2);
  EXPECT_EQ(json_of(header.bytes({{"k", "v"}, {"j", "\"\n"}})),
            R"({"__metadata__":{"j":"\"\u000a","k":"v"},)"
            R"("b":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
            R"("a":{"dtype":"U8","shape":[5],"data_offsets":[24,29]},)"
            R"("none":{"dtype":"F16","shape":[0,7],"data_offsets":[29,29]},)"
            R"("one":{"dtype":"F16","shape":[],"data_offsets":[29,31]}})");
}

TEST(safetensors_header, the_data_begins_at_a_multiple_of_64_whatever_the_names_length) {
  for (std::size_t n = 1; n <= 130; ++n) {
    safetensors_header header;
    header.add(std::string(n, 'x'), "U8", std::array<std::uint64_t, 1>{1}, 1);
    const auto json = json_of(header.bytes({}));
    EXPECT_EQ(json.size(), n + json_of(safetensors_header().bytes({})).size() + 51);
  }
}

}  // namespace
}  // namespace native_trace_writer_test
