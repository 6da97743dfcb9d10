// SPDX-License-Identifier: Apache-2.0
#include "hotset/trace/trace_recorder.hpp"

#include <limits>

#include <gtest/gtest.h>

#include "hotset/trace/native_trace_writer.hpp"
#include "lab/replay/visit_gather.hpp"
#include "trace_samples.hpp"

namespace trace_recorder_test {
namespace {
using namespace hotset;

trace_recorder_config config_of(const routing_trace& t, std::size_t capacity) {
  trace_recorder_config c;
  c.shape = t.shape();
  c.capacity = capacity;
  c.logits = true;
  c.probabilities = true;
  c.hidden_width = t.hidden_width;
  c.token_ids = true;
  return c;
}

TEST(trace_recorder, records_its_steps) {
  const auto trace = trace_samples::full_trace();
  const visit_sequence visits(trace);
  visit_gather gather(trace, visits);
  auto recorder = trace_recorder::create(config_of(trace, 8)).value();
  ASSERT_EQ(recorder.begin_step(0, request_class::prefill, 2), status::ok);
  EXPECT_EQ(recorder.record(gather[0]), status::ok);
  EXPECT_EQ(recorder.record(gather[1]), status::ok);
  ASSERT_EQ(recorder.end_step(), status::ok);
  const std::uint32_t sequence = 1;
  ASSERT_EQ(recorder.begin_step(7, request_class::decode, 1, {&sequence, 1}), status::ok);
  EXPECT_EQ(recorder.record(gather[2]), status::ok);
  ASSERT_EQ(recorder.end_step(), status::ok);
  const auto taken = recorder.take();
  EXPECT_FALSE(taken.validate()) << taken.validate()->message;
  EXPECT_EQ(taken.ids, trace.ids);
  EXPECT_EQ(taken.weights, trace.weights);
  EXPECT_EQ(taken.step, trace.step);
  EXPECT_EQ(taken.sequence, trace.sequence);
  EXPECT_EQ(taken.kind, trace.kind);
  EXPECT_EQ(taken.token_ids, trace.token_ids);
  EXPECT_EQ(taken.probabilities[5], 0.25F);
  EXPECT_EQ(taken.hidden[5], 2.0F);
  EXPECT_EQ(recorder.tokens(), 0U) << "begins anew";
  EXPECT_EQ(recorder.begin_step(0, request_class::decode, 8), status::ok);
}

TEST(trace_recorder, refuses_calls_out_of_order_and_lengths_that_do_not_belong) {
  const auto trace = trace_samples::full_trace();
  auto recorder = trace_recorder::create(config_of(trace, 4)).value();
  const std::vector<std::int32_t> ids = {0, 1};
  EXPECT_EQ(recorder.record({.layer = 0_layer, .experts = ids}), status::invalid_argument);
  EXPECT_EQ(recorder.end_step(), status::invalid_argument);
  EXPECT_EQ(recorder.begin_step(5, request_class::decode, 0), status::invalid_argument);
  ASSERT_EQ(recorder.begin_step(5, request_class::decode, 1), status::ok);
  EXPECT_EQ(recorder.begin_step(6, request_class::decode, 1), status::invalid_argument);
  EXPECT_EQ(recorder.record({.layer = 2_layer, .experts = ids}), status::invalid_visit);
  EXPECT_EQ(recorder.record({.layer = layer_id{-1}, .experts = ids}), status::invalid_visit);
  EXPECT_EQ(recorder.record({.layer = 0_layer, .experts = std::span(ids).first(1)}),
            status::invalid_visit);
  const std::vector<std::int32_t> two_tokens = {4, 5};
  EXPECT_EQ(recorder.record({.layer = 0_layer, .experts = ids, .token_ids = two_tokens}),
            status::invalid_visit);
  EXPECT_EQ(recorder.end_step(), status::ok);
  EXPECT_EQ(recorder.begin_step(5, request_class::decode, 1), status::invalid_argument);
}

// An engine's last layer may have rows only for the tokens whose output it needs.
TEST(trace_recorder, a_layer_may_have_rows_for_some_tokens_of_the_step) {
  const auto trace = trace_samples::full_trace();
  auto recorder = trace_recorder::create(config_of(trace, 8)).value();
  const std::vector<std::int32_t> all = {0, 1, 2, 3, 1, 0};
  const std::vector<std::int32_t> some = {3, 2, 0, 2};
  const std::vector<float> weights = {.5F, .25F, .75F, .125F};
  const std::vector<std::uint32_t> of = {0, 2};
  ASSERT_EQ(recorder.begin_step(3, request_class::prefill, 3), status::ok);
  ASSERT_EQ(recorder.record({.layer = 0_layer, .experts = all}), status::ok);
  ASSERT_EQ(recorder.record({.layer = 1_layer, .experts = all}), status::ok);
  ASSERT_EQ(recorder.record({.layer = 1_layer, .experts = some, .weights = weights}, of),
            status::ok);
  const auto refuse = [&](std::vector<std::uint32_t> bad) {
    return recorder.record({.layer = 0_layer, .experts = some}, bad) == status::invalid_visit;
  };
  EXPECT_TRUE(refuse({0, 3})) << "no token of the step";
  EXPECT_TRUE(refuse({1, 1}));
  EXPECT_TRUE(refuse({2, 0}));
  EXPECT_TRUE(refuse({1})) << "two rows of one token";
  ASSERT_EQ(recorder.end_step(), status::ok);
  const auto taken = recorder.take();
  EXPECT_FALSE(taken.validate());
  const auto ids = [&](std::size_t token, layer_id layer) {
    const auto of_token = taken.ids_of(token, layer);
    return std::pair(number(of_token[0]), number(of_token[1]));
  };
  EXPECT_EQ(ids(1, 0_layer), std::pair(2, 3)) << "what was refused has changed nothing";
  EXPECT_EQ(ids(0, 1_layer), std::pair(3, 2));
  EXPECT_EQ(ids(1, 1_layer), std::pair(-1, -1))
      << "the later call counts, for tokens without a row too";
  EXPECT_EQ(ids(2, 1_layer), std::pair(0, 2));
  EXPECT_EQ(taken.weights[taken.index(2, 1_layer)], .75F);
}

TEST(trace_recorder, the_later_call_for_a_layer_counts_as_a_whole) {
  const auto trace = trace_samples::full_trace();
  const visit_sequence visits(trace);
  visit_gather gather(trace, visits);
  auto recorder = trace_recorder::create(config_of(trace, 8)).value();
  ASSERT_EQ(recorder.begin_step(0, request_class::prefill, 2), status::ok);
  ASSERT_EQ(recorder.record(gather[0]), status::ok);
  auto plain = gather[0];
  plain.weights = plain.logits = plain.probabilities = plain.hidden = {};
  ASSERT_EQ(recorder.record(plain), status::ok);
  ASSERT_EQ(recorder.end_step(), status::ok);
  const auto taken = recorder.take();
  EXPECT_THAT(taken.weights, testing::Each(0.0F));
  EXPECT_THAT(taken.logits, testing::Each(0.0F));
  for (std::size_t i = 0; i < taken.probabilities.size(); ++i)
    EXPECT_EQ(taken.probabilities[i], 0.0F);
  for (std::size_t i = 0; i < taken.hidden.size(); ++i) EXPECT_EQ(taken.hidden[i], 0.0F);
}

TEST(trace_recorder, a_step_that_does_not_fit_is_omitted_as_a_whole) {
  auto recorder = trace_recorder::create(config_of(trace_samples::full_trace(), 3)).value();
  ASSERT_EQ(recorder.begin_step(0, request_class::decode, 2), status::ok);
  ASSERT_EQ(recorder.end_step(), status::ok);
  EXPECT_EQ(recorder.begin_step(1, request_class::decode, 2), status::exceeds_memory);
  EXPECT_EQ(recorder.lost_tokens(), 2U);
  EXPECT_EQ(recorder.take().tokens(), 2U);
}

TEST(trace_recorder, replaces_values_that_no_trace_may_hold) {
  auto recorder = trace_recorder::create(config_of(trace_samples::full_trace(), 3)).value();
  const std::vector<std::int32_t> ids = {4, -7};
  const std::vector<float> weights = {std::numeric_limits<float>::quiet_NaN(), 1.0F};
  ASSERT_EQ(recorder.begin_step(0, request_class::decode, 1), status::ok);
  ASSERT_EQ(recorder.record({.layer = 1_layer, .experts = ids, .weights = weights}), status::ok);
  ASSERT_EQ(recorder.end_step(), status::ok);
  const auto taken = recorder.take();
  EXPECT_FALSE(taken.validate());
  EXPECT_EQ(taken.weights_of(0, 1_layer)[0], 0.0F);
  EXPECT_EQ(taken.ids_of(0, 1_layer)[0], no_expert);
  EXPECT_EQ(taken.ids_of(0, 0_layer)[0], no_expert) << "a layer that was not recorded";
}

TEST(trace_recorder, refuses_a_configuration_with_the_accepted_range) {
  auto config = config_of(trace_samples::full_trace(), 0);
  EXPECT_FALSE(trace_recorder::create(config));
  config.capacity = 1;
  config.hidden_width = -1;
  EXPECT_FALSE(trace_recorder::create(config));
  config.hidden_width = 1 << 24;
  config.capacity = std::size_t{1} << 31U;
  config.shape = {.layers = 1 << 20, .experts = 2, .top_k = 1};
  EXPECT_EQ(trace_recorder::create(config).error().message,
            "capacity x layers x hidden_width = 2147483648 x 1048576 x 16777216, accepted: fewer "
            "than 2^62");
}

// Otherwise the writer would detect the limit only at the end.
TEST(trace_recorder, refuses_more_experts_than_a_file_holds) {
  trace_recorder_config config;
  config.shape = {.layers = 1, .experts = 65536, .top_k = 2};
  config.capacity = 1;
  EXPECT_EQ(trace_recorder::create(config).error().message,
            "experts = 65536, accepted: 1..65535 (a trace file keeps ids in 16 bits)");
  config.shape.experts = 65535;
  auto recorder = trace_recorder::create(config).value();
  const std::vector<std::int32_t> ids = {65534, 65535};
  ASSERT_EQ(recorder.begin_step(4294967295U, request_class::decode, 1), status::ok);
  ASSERT_EQ(recorder.record({.layer = 0_layer, .experts = ids}), status::ok);
  ASSERT_EQ(recorder.end_step(), status::ok);
  EXPECT_EQ(recorder.closed().ids, (std::vector{65534_expert, no_expert}));
  const trace_samples::temporary_folder folder;
  const auto path = folder.file("most_experts.trace");
  const auto bad = write_native_trace(recorder.closed(), path);
  EXPECT_FALSE(bad) << bad->message;
}

TEST(trace_recorder, returns_the_closed_steps_and_continues) {
  const auto trace = trace_samples::full_trace();
  auto recorder = trace_recorder::create(config_of(trace, 8)).value();
  const std::vector<std::int32_t> ids{0, 1, 1, 2};
  ASSERT_EQ(recorder.begin_step(0, request_class::prefill, 2), status::ok);
  ASSERT_EQ(recorder.record({.layer = 0_layer, .experts = ids}), status::ok);
  ASSERT_EQ(recorder.end_step(), status::ok);
  const auto first = recorder.closed();
  EXPECT_EQ(first.tokens(), 2U);
  ASSERT_EQ(recorder.begin_step(1, request_class::decode, 1), status::ok);
  EXPECT_EQ(recorder.closed().ids, first.ids) << "an open step is not among them";
  ASSERT_EQ(recorder.end_step(), status::ok);
  const auto all = recorder.take();
  EXPECT_EQ(all.tokens(), 3U);
  EXPECT_EQ(all.probabilities.size(), 3U * 2 * static_cast<std::size_t>(all.experts));
  EXPECT_EQ(recorder.closed().tokens(), 0U);
}

}  // namespace
}  // namespace trace_recorder_test
