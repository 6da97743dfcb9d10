// SPDX-License-Identifier: Apache-2.0
#include "hotset/trace/native_trace_writer.hpp"

#include <csignal>

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
  // A target that is a folder with something in it cannot be replaced: the temporary goes away.
  std::filesystem::create_directories(folder.path() / "taken" / "inside");
  EXPECT_TRUE(write_native_trace(trace_samples::full_trace(), (folder.path() / "taken").string()));
  EXPECT_EQ(folder.files(), 2U);
}

TEST(native_trace_writer, a_write_that_fails_half_way_leaves_the_earlier_file) {
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

}  // namespace
}  // namespace native_trace_writer_test
