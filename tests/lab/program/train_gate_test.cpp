// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <string>
#include <vector>

#include "hotset/trace/half_array.hpp"
#include "hotset/trace/native_trace_writer.hpp"
#include "hotset/trace/routing_trace.hpp"
#include "run_program.hpp"

namespace train_gate_test {
namespace {

using testing::HasSubstr;

class train_gate : public hotset_test::command_line {
 protected:
  void SetUp() override {
    command_line::SetUp();
    write("hidden.trace", true);
    write("plain.trace", false);
  }
  /// Three layers of 4 experts, top-1: the hidden state of each layer says which expert the next one routes.
  void write(const std::string& name, bool hidden, std::uint32_t sequences = 10) const {
    hotset::routing_trace trace;
    trace.name = "told";
    trace.layers = 3;
    trace.experts = 4;
    trace.top_k = 1;
    trace.expert_bytes = {100};
    std::vector<std::uint16_t> states;
    for (std::uint32_t t = 0; t < sequences * 16; ++t) {
      trace.step.push_back(t);
      trace.sequence.push_back(t / 16);
      trace.kind.push_back(hotset::request_class::decode);
      const std::int32_t routed[] = {static_cast<std::int32_t>(t * 7 % 4),
                                     static_cast<std::int32_t>(t / 4 % 4),
                                     static_cast<std::int32_t>(t * t / 3 % 4), 0};
      for (int l = 0; l < 3; ++l) {
        trace.ids.push_back(hotset::expert_id{routed[l]});
        for (int i = 0; i < 4; ++i)
          states.push_back(hotset::float_to_half(routed[l + 1] == i ? 1.0F : 0.0F));
      }
    }
    if (hidden) {
      trace.hidden_width = 4;
      trace.hidden = hotset::half_array(std::move(states));
    }
    hotset::file_writer file(path(name));
    ASSERT_FALSE(hotset::write_native_trace(trace, file));
  }
};

TEST_F(train_gate, writes_weights_and_says_what_they_are_worth) {
  const auto found =
      json_of("train-gate hidden.trace --out told.gate --width 8 --epochs 400 --json");
  EXPECT_EQ(found["schema"], "hotset.train-gate/1");
  EXPECT_EQ(found["trace"], "told");
  EXPECT_EQ(found["depth"], 1);
  EXPECT_EQ(found["width"], 8);
  EXPECT_EQ(found["target"], "routed");
  EXPECT_EQ(found["learnt"]["sequences"], 8);
  EXPECT_EQ(found["judged"]["tokens"], 32);
  ASSERT_EQ(found["distances"].size(), 1U);
  EXPECT_EQ(found["distances"][0]["places"], 32 * 2);
  EXPECT_GT(found["distances"][0]["precision"], 0.95);
  EXPECT_EQ(found["distances"][0]["current_gate"], nullptr);
  EXPECT_TRUE(hotset_test::read_text(path("told.gate")).starts_with("hslearng"));

  const auto again = run("train-gate hidden.trace --out again.gate --width 8 --epochs 400");
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.out,
              HasSubstr("3 layers x 4 experts, hidden states of 4; 2 networks of width 8"));
  EXPECT_THAT(again.out, HasSubstr("layers ahead"));
  EXPECT_EQ(hotset_test::read_text(path("again.gate")), hotset_test::read_text(path("told.gate")));

  const auto piped =
      shell("hotset train-gate hidden.trace --out - --width 8 --epochs 400 >piped.gate");
  EXPECT_EQ(piped.code, 0);
  EXPECT_THAT(piped.err, HasSubstr("precision at 1"));
  EXPECT_EQ(hotset_test::read_text(path("piped.gate")), hotset_test::read_text(path("told.gate")));
}

TEST_F(train_gate, simulate_prefetches_by_what_was_learnt) {
  ASSERT_EQ(run("train-gate hidden.trace --out told.gate --width 8 --epochs 400").code, 0);
  const std::string simulate =
      "simulate hidden.trace --slots 50% --prefetch next_layer_top_k --link 1GB/s ";
  const auto row =
      json_of(simulate + "--predictor learned-gate:weights=told.gate --json")["results"][0];
  EXPECT_GT(row["prefetch_precision"], 0.9);
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

TEST_F(train_gate, refuses_what_it_cannot_learn_from) {
  write("one.trace", true, 1);
  hotset_test::write_text(path("earlier.gate"), "earlier");
  const auto before = files();
  refused("train-gate hidden.trace", 2, {"--out is required"});
  refused("train-gate plain.trace --out earlier.gate", 4,
          {"plain.trace: the trace has no hidden states, accepted: a trace that recorded them"});
  refused("train-gate hidden.trace --out new.gate --depth 3", 2, {"depth = 3, accepted: 1..2"});
  refused("train-gate one.trace --out new.gate", 4, {"one.trace: 1 sequence in the trace"});
  refused("train-gate hidden.trace --out new.gate --depth 0", 2, {"--depth: '0'"});
  refused("train-gate hidden.trace --out new.gate --holdout 1", 2, {"--holdout: '1'"});
  refused("train-gate hidden.trace --out new.gate --target rooted", 2,
          {"--target: 'rooted' (did you mean routed?)"});
  refused("train-gate hidden.trace --out new.gate --target probabilities", 4, {"no probabilities"});
  refused("train-gate absent.trace --out new.gate", 4, {"absent.trace"});
  refused("train-gate hidden.trace --out nowhere/new.gate", 1, {"nowhere"});
  EXPECT_EQ(files(), before) << "nothing was written";
  EXPECT_EQ(hotset_test::read_text(path("earlier.gate")), "earlier");
  EXPECT_EQ(run("train-gate one.trace --out one.gate --holdout 0 --epochs 1").code, 0);
}

}  // namespace
}  // namespace train_gate_test
