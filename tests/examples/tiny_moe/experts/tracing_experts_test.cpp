// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/experts/tracing_experts.hpp"

#include <algorithm>
#include <stdexcept>

#include <gtest/gtest.h>

#include "hotset/paging/pager.hpp"
#include "hotset/trace/native_trace_writer.hpp"
#include "hotset/trace/visit_sequence.hpp"
#include "lab/replay/registry.hpp"
#include "lab/traces/native_trace.hpp"
#include "paging_samples.hpp"
#include "temporary_folder.hpp"

namespace tracing_experts_test {
namespace {

using namespace paging_samples;

constexpr std::size_t experts = 32, layers = 12, top_k = 4, hidden = 96;

// The engine's decisions and its recorded routing: two sequences, prompts in chunks.
struct recording {
  std::uint64_t hash = 0;
  std::uint64_t hits = 0;
  hotset::routing_trace trace;
};
recording record(paged_provider& paged, std::size_t max_tokens) {
  tracing_experts tracing(weights(), paged, {.capacity = 300});
  engine decoder(weights(), tracing, {.max_tokens = max_tokens});
  std::uint32_t sequence = 0;
  for (const std::string_view words : {text, text.substr(40)}) {
    decoder.reset();
    tracing.begin_sequence(sequence++);
    const auto tokens = bytes_of(words);
    for (std::size_t t = 0; t < tokens.size(); t += max_tokens) {
      decoder.forward(std::span(tokens).subspan(t, std::min(max_tokens, tokens.size() - t)),
                      request_kind::prefill);
    }
    for (int i = 0; i < 20; ++i) decoder.forward({&tokens[5], 1}, request_kind::decode);
  }
  return {paged.decision_hash(), paged.stats().hits, tracing.take()};
}

// Writes a trace to a file and reads it, as the simulator does.
hotset::routing_trace through_a_file(const hotset::routing_trace& trace) {
  const hotset::support::temporary_folder folder;
  const auto path = folder.path() / "trace.safetensors";
  const auto bad = hotset::write_native_trace(trace, path.string());
  EXPECT_FALSE(bad) << bad->message;
  return hotset::lab::read_native_trace(path);
}

template <class Pager>
void replay(Pager& pager, const hotset::visit_sequence& visits) {
  auto plan = pager.make_plan();
  for (std::size_t i = 0; i < visits.size(); ++i)
    ASSERT_EQ(pager.serve(visits[i], plan, [](const hotset::visit_group&) {}), hotset::status::ok);
}

TEST(tiny_moe_trace, a_replay_makes_the_engines_decisions) {
  for (const auto scope : {cache_scope::shared, cache_scope::per_layer}) {
    for (const char* budget : {"4", "25%"}) {
      for (const std::size_t max_tokens : {std::size_t{16}, std::size_t{100}}) {
        SCOPED_TRACE(std::string(budget) + ", " + std::to_string(max_tokens) + " tokens a pass");
        const auto layout = layout_of(weights(), scope, budget, max_tokens);
        paged_experts<lru_pager> direct(weights(), {.layout = layout});
        const auto engine_side = record(direct, max_tokens);
        const auto trace = through_a_file(engine_side.trace);
        const hotset::visit_sequence visits(trace);
        EXPECT_EQ(visits.size(), (engine_side.trace.step.back() + 1) * layers);

        lru_pager same({.layout = layout});
        replay(same, visits);
        EXPECT_EQ(same.decision_hash(), engine_side.hash);
        EXPECT_EQ(same.stats().hits, engine_side.hits);

        auto by_name = hotset::lab::make_pager({.eviction = "lru", .layout = layout});
        replay(by_name, visits);
        EXPECT_EQ(by_name.decision_hash(), engine_side.hash);
      }
    }
  }
}

TEST(tiny_moe_trace, other_recorded_arrays_are_the_routers_inputs) {
  resident_experts resident(weights());
  tracing_experts tracing(weights(), resident,
                          {.capacity = text.size() + 1,
                           .logits = true,
                           .probabilities = true,
                           .hidden = true,
                           .predictions = true});
  engine decoder(weights(), tracing);
  decoder.forward(bytes_of(text));
  tracing.begin_sequence(1);
  decoder.forward(bytes_of("x"));
  const auto trace = through_a_file(tracing.take());
  ASSERT_EQ(trace.tokens(), text.size() + 1);
  EXPECT_EQ(trace.sequence.back(), 1U);
  EXPECT_EQ(trace.kind.front(), hotset::request_class::prefill);
  EXPECT_EQ(trace.kind.back(), hotset::request_class::decode);
  EXPECT_EQ(trace.prediction_depth, 1);

  std::vector<float> row(hidden), scores(experts);
  for (std::size_t t = 0; t < trace.tokens(); ++t) {
    for (std::size_t l = 0; l < layers; ++l) {
      const std::size_t place = t * layers + l;
      const auto first = trace.ids[place * top_k];
      const auto at = [&](auto& values, hotset::expert_id expert) {
        return values[place * experts + index_of(expert)];
      };
      // The first id has the largest logit and probability; its weight is its part of the four.
      float four = 0.0F;
      for (std::size_t k = 0; k < top_k; ++k) {
        four += at(trace.probabilities, trace.ids[place * top_k + k]);
      }
      for (const auto e : hotset::each<hotset::expert_id>(32))
        ASSERT_LE(at(trace.logits, e), at(trace.logits, first));
      ASSERT_NEAR(trace.weights[place * top_k], at(trace.probabilities, first) / four, 2e-3);
      if (l + 1 == layers) {
        for (const auto e : hotset::each<hotset::expert_id>(32))
          ASSERT_EQ(at(trace.predictions, e), 0.0F);
        continue;
      }
      // The next layer's router applied to the recorded (rounded) hidden state gives the predictions.
      for (std::size_t i = 0; i < hidden; ++i) row[i] = trace.hidden[place * hidden + i];
      project(weights().layer(l + 1).router.data(), hidden, experts, row.data(), 1, scores.data());
      softmax(scores, scores.data());
      for (const auto e : hotset::each<hotset::expert_id>(32))
        ASSERT_NEAR(at(trace.predictions, e), scores[index_of(e)], 1e-2);
    }
  }
}

TEST(tiny_moe_trace, a_pass_that_does_not_fit_is_refused) {
  resident_experts resident(weights());
  tracing_experts tracing(weights(), resident, {.capacity = 8});
  engine decoder(weights(), tracing);
  decoder.forward(bytes_of("12345678"));
  EXPECT_THROW(decoder.forward(bytes_of("9")), std::length_error);
  EXPECT_EQ(tracing.take().tokens(), 8U);
}

}  // namespace
}  // namespace tracing_experts_test
