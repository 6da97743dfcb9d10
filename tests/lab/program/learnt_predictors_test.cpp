// SPDX-License-Identifier: Apache-2.0
// Prefetching with learned tables and networks, in replays.
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "hotset/predict/learned_gate.hpp"
#include "hotset/trace/half_array.hpp"
#include "hotset/trace/native_trace_writer.hpp"
#include "hotset/trace/routing_trace.hpp"
#include "run_program.hpp"
#include "saved_gates.hpp"
#include "sim_samples.hpp"

namespace learnt_predictors_test {
namespace {

class learnt_predictors : public hotset_test::command_line {
 protected:
  /// Three layers of 4 experts, top-1: the hidden state of each layer determines the next layer's expert.
  void write_trace(const std::string& name, bool hidden) const {
    auto trace = hotset::support::empty_trace(3, 4, 1);
    trace.expert_bytes = {100};
    std::vector<std::uint16_t> states;
    for (std::int32_t t = 0; t < 160; ++t) {
      const std::vector<std::int32_t> routed{t * 7 % 4, t / 4 % 4, t * t / 3 % 4};
      hotset::support::add_step(trace, {{routed}});
      trace.sequence.back() = static_cast<std::uint32_t>(t / 16);
      for (const auto next : {routed[1], routed[2], 0})
        for (int i = 0; i < 4; ++i)
          states.push_back(hotset::float_to_half(next == i ? 1.0F : 0.0F));
    }
    if (hidden) {
      trace.hidden_width = 4;
      trace.hidden = hotset::half_array(std::move(states));
    }
    hotset::file_writer file(path(name));
    ASSERT_FALSE(hotset::write_native_trace(trace, file));
  }
  /// Linear networks that compute the expert from the hidden state.
  void write_gate(const std::string& name) const {
    auto made = hotset::learned_gate::weights::create(
        {.layers = 3, .experts = 4, .d_model = 4, .depth = 1, .width = 0});
    ASSERT_TRUE(made);
    for (const auto layer : {hotset::layer_id{0}, hotset::layer_id{1}})
      for (std::size_t e = 0; e < 4; ++e) made->of(layer, 1).scores[5 * e] = 9;
    std::string text;
    for (const auto b : hotset::support::saved(*made)) text += static_cast<char>(b);
    write(name, text);
  }
};

TEST_F(learnt_predictors, a_gate_prefetches_by_hidden_states) {
  write_trace("hidden.trace", true);
  write_trace("plain.trace", false);
  write_gate("told.gate");
  const std::string simulate =
      "simulate hidden.trace --slots 50% --prefetch next_layer_top_k --link 1GB/s ";
  const auto row =
      json_of(simulate + "--predictor learned-gate:weights=told.gate --json")["results"][0];
  EXPECT_EQ(row["prefetch_precision"], 1.0);
  refused(simulate + "--predictor learned-gate", 2, {"weights = none, accepted: weights=FILE"});
  refused(simulate + "--predictor learned-gate:weights=absent", 2, {"absent: cannot be read"});
  refused(simulate + "--predictor learned-gate:weights=hidden.trace", 2,
          {"hidden.trace: no learned_gate weights"});
  refused(
      "simulate hidden.trace --slots 50% --prefetch next_layer_top_k:depth=2 --predictor "
      "learned-gate:weights=told.gate",
      2, {"learned_gate depth = 2, accepted: 1..1 (depth of the weights)"});
  refused(
      "simulate plain.trace --slots 50% --prefetch next_layer_top_k --predictor "
      "learned-gate:weights=told.gate",
      2, {"learned-gate needs hidden states, and the trace has none"});
}

TEST_F(learnt_predictors, a_co_activation_table_prefetches_without_scores) {
  (void)out_of(
      "synth a.trace --layers 4 --experts 8 --top-k 2 --tokens 60 --sequences 3 --zipf 1 "
      "--stickiness 0.5 --seed 97");
  const auto rows = json_of(
      "simulate a.trace --slots 50% --prefetch no_prefetch,next_layer_top_k --predictor "
      "co-activation --link 1GB/s --json")["results"];
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_GT(rows[1]["prefetch_precision"], 0.25);
  EXPECT_GT(rows[1]["prefetch_hits"], 0);
  refused(
      "simulate a.trace --slots 50% --prefetch next_layer_top_k:depth=3 --predictor "
      "co-activation:reach=2",
      2, {"depth = 3, accepted: 1..2 (reach)"});
  refused("simulate a.trace --predictor crystal", 2,
          {"predictor 'crystal'; accepted: recorded, current-gate, activation-matrix, "
           "co-activation, expert-map, last-routed"});
}

}  // namespace
}  // namespace learnt_predictors_test
