// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "c_handles.hpp"
#include "hotset.h"
#include "hotset/trace/native_trace_writer.hpp"
#include "hotset/trace/trace_recorder.hpp"
#include "trace_samples.hpp"

namespace hotset::recorder_test {
namespace {

using support::open;
using support::refusal_of;
using support::view_of;
using testing::HasSubstr;

hotset_recorder_options options() {
  auto out = support::options_of<hotset_recorder_options>(2, 8, 2);
  out.capacity = 3;
  out.weights = 1;
  out.name = "a run";
  return out;
}
/// The C++ recorder with the same options.
trace_recorder same_recorder() {
  trace_recorder_config config;
  config.shape = {.layers = 2, .experts = 8, .top_k = 2};
  config.capacity = 3;
  config.name = "a run";
  return trace_recorder::create(config).value();
}

/// Both recorders write the same bytes.
void expect_same_file(hotset_recorder* recorder, trace_recorder& same) {
  const trace_samples::temporary_folder folder;
  const auto path = folder.file("trace");
  ASSERT_EQ(hotset_recorder_write(recorder, path.c_str()), HOTSET_OK) << hotset_last_error();
  ASSERT_FALSE(write_native_trace(same.take(), path + ".same"));
  EXPECT_EQ(trace_samples::read_all(path), trace_samples::read_all(path + ".same"));
  EXPECT_FALSE(trace_samples::read_all(path).empty());
}

TEST(c_recorder, takes_a_layer_with_rows_for_some_tokens) {
  const auto held = open(options());
  auto* const recorder = held.get();
  auto same = same_recorder();
  const std::vector<std::int32_t> ids{1, 2, 3, 4};
  const std::vector<std::uint32_t> of{0, 2};
  ASSERT_EQ(hotset_recorder_begin_step(recorder, 0, 1, 3, nullptr), HOTSET_OK);
  ASSERT_EQ(same.begin_step(0, request_class::prefill, 3), status::ok);
  const auto view = view_of(1, 0, ids);
  EXPECT_EQ(hotset_recorder_record(recorder, &view), HOTSET_INVALID_VISIT);
  EXPECT_EQ(hotset_recorder_record_rows(recorder, &view, nullptr), HOTSET_INVALID_ARGUMENT);
  const std::vector<std::uint32_t> beyond{0, 3};
  EXPECT_EQ(hotset_recorder_record_rows(recorder, &view, beyond.data()), HOTSET_INVALID_VISIT);
  ASSERT_EQ(hotset_recorder_record_rows(recorder, &view, of.data()), HOTSET_OK);
  ASSERT_EQ(same.record({.layer = 1_layer, .experts = ids}, of), status::ok);
  ASSERT_EQ(hotset_recorder_end_step(recorder), HOTSET_OK);
  ASSERT_EQ(same.end_step(), status::ok);
  expect_same_file(recorder, same);
}

TEST(c_recorder, writes_the_bytes_of_the_librarys_recorder) {
  const auto held = open(options());
  auto* const recorder = held.get();
  auto same = same_recorder();

  const std::vector<std::int32_t> wide{1, 2, 99, 3, 4, 99};  // rows with gaps between them
  const std::vector<std::int32_t> dense{1, 2, 3, 4};
  const std::vector<float> weights{0.5F, 0.25F, 0.75F, 0.125F};
  const std::vector<std::uint32_t> sequences{7, 8};
  ASSERT_EQ(hotset_recorder_begin_step(recorder, 4, 1, 2, sequences.data()), HOTSET_OK);
  ASSERT_EQ(same.begin_step(4, request_class::prefill, 2, sequences), status::ok);
  for (std::int32_t layer = 0; layer < 2; ++layer) {
    auto view = view_of(layer, 0, wide, 3);
    view.experts_stride = 3;
    view.weights = weights.data();
    ASSERT_EQ(hotset_recorder_record(recorder, &view), HOTSET_OK) << hotset_last_error();
    ASSERT_EQ(
        same.record({.layer = static_cast<layer_id>(layer), .experts = dense, .weights = weights}),
        status::ok);
  }
  ASSERT_EQ(hotset_recorder_end_step(recorder), HOTSET_OK);
  ASSERT_EQ(same.end_step(), status::ok);
  EXPECT_EQ(hotset_recorder_begin_step(recorder, 5, 0, 2, nullptr), HOTSET_EXCEEDS_MEMORY);
  std::size_t tokens = 0;
  std::uint64_t lost = 0;
  ASSERT_EQ(hotset_recorder_tokens(recorder, &tokens, &lost), HOTSET_OK);
  EXPECT_EQ(tokens, 2U);
  EXPECT_EQ(lost, 2U);

  expect_same_file(recorder, same);
}

// Limits of the file format are checked before anything is recorded.
TEST(c_recorder, limits_of_the_file_are_checked_when_recording_starts) {
  auto how = options();
  how.experts = 70000;
  EXPECT_EQ(refusal_of(how),
            "experts = 70000, accepted: 1..65535 (a trace file keeps ids in 16 bits)");
  how.experts = 65535;
  const auto held = open(how);
  auto* const recorder = held.get();
  const std::vector<std::int32_t> ids{65534, 1, 65535, -1};
  const auto view = view_of(0, 0, ids);
  ASSERT_EQ(hotset_recorder_begin_step(recorder, 0xffffffffU, 0, 2, nullptr), HOTSET_OK);
  ASSERT_EQ(hotset_recorder_record(recorder, &view), HOTSET_OK);
  ASSERT_EQ(hotset_recorder_end_step(recorder), HOTSET_OK);
  const trace_samples::temporary_folder folder;
  EXPECT_EQ(hotset_recorder_write(recorder, folder.file("trace").c_str()), HOTSET_OK)
      << hotset_last_error();
}

TEST(c_recorder, a_refused_step_has_its_own_message) {
  const auto held = open(options());
  auto* const recorder = held.get();
  EXPECT_EQ(hotset_recorder_begin_step(recorder, 0, 0, 4, nullptr), HOTSET_EXCEEDS_MEMORY);
  EXPECT_STREQ(
      hotset_last_error(),
      "a step of 4 tokens, accepted: at most 3, the rest of capacity = 3; write the trace to "
      "start again");
  const std::string order =
      " of 1 tokens, accepted: a number above the last step's and at most 4294967295, 1 token or "
      "more, and no step open";
  ASSERT_EQ(hotset_recorder_begin_step(recorder, 7, 0, 1, nullptr), HOTSET_OK);
  EXPECT_EQ(hotset_recorder_begin_step(recorder, 8, 0, 1, nullptr), HOTSET_INVALID_ARGUMENT);
  EXPECT_EQ(hotset_last_error(), "step 8" + order);
  ASSERT_EQ(hotset_recorder_end_step(recorder), HOTSET_OK);
  EXPECT_EQ(hotset_recorder_begin_step(recorder, 7, 0, 1, nullptr), HOTSET_INVALID_ARGUMENT);
  EXPECT_EQ(hotset_last_error(), "step 7" + order);
  EXPECT_EQ(hotset_recorder_end_step(recorder), HOTSET_INVALID_ARGUMENT);
  EXPECT_STREQ(hotset_last_error(), "no step is open, accepted: hotset_recorder_begin_step first");
}

TEST(c_recorder, mistakes_are_refused_in_words) {
  auto how = options();
  how.capacity = 0;
  EXPECT_THAT(refusal_of(how), HasSubstr("capacity = 0 tokens"));
  const auto held = open(options());
  auto* const recorder = held.get();
  const std::vector<std::int32_t> ids{1, 2};
  auto view = view_of(0, 0, ids);
  EXPECT_EQ(hotset_recorder_record(recorder, &view), HOTSET_INVALID_ARGUMENT);
  EXPECT_STREQ(hotset_last_error(), "no step is open, accepted: hotset_recorder_begin_step first");
  ASSERT_EQ(hotset_recorder_begin_step(recorder, 0, 0, 1, nullptr), HOTSET_OK);
  view.layer = 2;
  EXPECT_EQ(hotset_recorder_record(recorder, &view), HOTSET_INVALID_VISIT);
  EXPECT_STREQ(hotset_last_error(), "a visit of layer 2, accepted: 0..1");
  EXPECT_EQ(hotset_recorder_write(recorder, "/nowhere/at/all"), HOTSET_CANNOT_WRITE);
  EXPECT_THAT(hotset_last_error(), HasSubstr("/nowhere/at/all"));
  EXPECT_EQ(hotset_recorder_end_step(nullptr), HOTSET_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace hotset::recorder_test
