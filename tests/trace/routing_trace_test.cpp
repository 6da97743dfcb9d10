// SPDX-License-Identifier: Apache-2.0
#include "hotset/trace/routing_trace.hpp"

#include <functional>
#include <limits>

#include <gtest/gtest.h>

#include "trace_samples.hpp"

namespace routing_trace_test {
namespace {
using namespace hotset;

TEST(routing_trace, a_full_trace_is_valid) {
  const auto trace = trace_samples::full_trace();
  const auto bad = trace.validate();
  EXPECT_FALSE(bad) << bad->message;
  EXPECT_EQ(trace.tokens(), 3U);
  EXPECT_EQ(trace.ids_of(1, 0_layer)[1], 2);
  EXPECT_EQ(trace.weights_of(1, 1_layer)[0], 1.0F);
  EXPECT_EQ(trace.fact("layers"), "1,2");
  EXPECT_FALSE(trace.fact("nothing"));
}

TEST(routing_trace, refuses_invalid_traces_and_names_the_accepted_range) {
  struct fault {
    std::function<void(routing_trace&)> make;
    std::string said;
  };
  const std::vector<fault> faults = {
      {[](auto& t) { t.ids[3] = 4_expert; },
       "id of token 0, layer 1, position 1 is 4, accepted: 0..3"},
      {[](auto& t) { t.ids[0] = expert_id{-2}; }, "id of token 0, layer 0, position 0 is -2"},
      {[](auto& t) { t.weights[5] = std::numeric_limits<float>::quiet_NaN(); },
       "weight of token 1, layer 0, position 1 is not finite"},
      {[](auto& t) { t.weights[5] = std::numeric_limits<float>::infinity(); }, "not finite"},
      {[](auto& t) { t.logits[9] = std::numeric_limits<float>::quiet_NaN(); },
       "logit of token 1, layer 0, position 1 is NaN"},
      {[](auto& t) { t.step[2] = 0, t.step[1] = 1; }, "step[2] = 0, accepted: 1 or more"},
      {[](auto& t) { t.kind[1] = static_cast<request_class>(3); }, "kind[1] = 3"},
      {[](auto& t) { t.ids.pop_back(); }, "ids has 11 entries, accepted: 12"},
      {[](auto& t) { t.weights.pop_back(); }, "weights has 11 entries, accepted: 12 or none"},
      {[](auto& t) { t.sequence.clear(); }, "sequence has 0 entries, accepted: 3"},
      {[](auto& t) { t.adapter.pop_back(); }, "adapter has 2 entries"},
      {[](auto& t) { t.token_ids.pop_back(); }, "token_ids has 2 entries, accepted: 3 or none"},
      {[](auto& t) { t.hidden_width = 2; }, "hidden has 18 entries, accepted: 12 or none"},
      {[](auto& t) { t.prediction_depth = 0; }, "prediction_depth = 0"},
      {[](auto& t) {
         t.expert_bytes = {1, 0};
       },
       "expert_bytes[1] = 0"},
      {[](auto& t) { t.top_k = 5; }, "top_k = 5, accepted: 1..4"},
      {[](auto& t) { t.layers = std::numeric_limits<std::int32_t>::max(); }, "layers x experts"},
      {[](auto& t) { t.step.clear(); }, "the trace has no tokens"},
  };
  for (const auto& [make, said] : faults) {
    auto trace = trace_samples::full_trace();
    make(trace);
    const auto bad = trace.validate();
    ASSERT_TRUE(bad) << said;
    EXPECT_NE(bad->message.find(said), std::string::npos) << bad->message;
  }
}

TEST(routing_trace, a_logit_of_minus_infinity_is_a_masked_expert) {
  auto trace = trace_samples::full_trace();
  trace.logits[0] = -std::numeric_limits<float>::infinity();
  EXPECT_FALSE(trace.validate());
}

}  // namespace
}  // namespace routing_trace_test
