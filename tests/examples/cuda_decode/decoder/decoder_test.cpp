// SPDX-License-Identifier: Apache-2.0
// A captured step that misses an expert is detected, discarded and replayed; graphs hold only fixed addresses.

#include "cuda_decode/decoder/decoder.hpp"

#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cuda_decode/model/reference_decode.hpp"
#include "fake_machine.hpp"
#include "written_ids.hpp"

namespace cuda_decode::decoder_test {
namespace {

using namespace hotset::literals;

paged_experts paged(const fake_machine& machine, const small_model& model,
                    const hotset::pool_layout& layout) {
  return paged_experts(machine.parts.api, layout, {model.shape.layout()}, model.weights.source(),
                       model.pages, {});
}
paged_experts paged(const fake_machine& machine, const small_model& model, std::int64_t cap) {
  return paged(machine, model, hotset::pool_layout::per_layer(model.shape.geometry(), cap).value());
}

/// A loop over one step of small-bf16 with kernels of a test.
struct small_loop {
  small_loop(fake_machine& machine, decode_kernels& kernels, decode_mode mode,
             routing_known known = routing_known::ahead)
      : model(machine, shape_named("small-bf16"), 1),
        experts(paged(machine, model, 4)),
        loop(machine.with(kernels), model.shape, experts, mode, known) {}
  void step() { (void)loop.step(model.routing.ids(0), model.routing.weights(0)); }

  small_model model;
  paged_experts experts;
  decoder loop;
};

class step_graph : public testing::TestWithParam<pace> {};

TEST_P(step_graph, sees_every_miss_and_replays_the_step) {
  constexpr std::size_t steps = 12;
  fake_machine machine(GetParam(), 3);
  const small_model model(machine, shape_named("small-fp8"), steps,
                          {.zipf = 1.0, .stickiness = 0.7, .seed = 5});
  const auto wanted = reference_decode(model.shape, model.weights.source(), model.routing, steps);
  auto experts = paged(machine, model, 4);
  decoder loop(machine.parts, model.shape, experts, decode_mode::step_graph, routing_known::ahead);
  std::uint64_t replayed = 0;
  for (std::size_t s = 0; s < steps; ++s) {
    SCOPED_TRACE("step " + std::to_string(s));
    const auto before = experts.traffic();
    const auto counts = loop.counts();
    const auto hidden = loop.step(model.routing.ids(s), model.routing.weights(s));
    EXPECT_EQ(std::vector<float>(hidden.begin(), hidden.end()), wanted[s]);
    const auto after = experts.traffic();
    // Each layer has a pool: the graph's misses in each layer equal the misses of resolve.
    const auto missed = (after.accesses - after.hits) - (before.accesses - before.hits);
    EXPECT_EQ(loop.counts().missing_experts - counts.missing_experts, missed);
    EXPECT_EQ(loop.counts().replayed_steps - counts.replayed_steps, missed == 0 ? 0U : 1U);
    EXPECT_EQ(after.accesses - before.accesses, model.routing.distinct(s, s + 1));
    replayed += missed == 0 ? 0U : 1U;
  }
  EXPECT_GT(replayed, 2U);
  EXPECT_LT(replayed, steps);
  EXPECT_EQ(machine.graphs.captures(), 1U);
  EXPECT_EQ(machine.graphs.launches(), steps);
  EXPECT_THAT(machine.api.violations(), testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(paces, step_graph, testing::Values(pace::late, pace::soon, pace::random));

// Layers that share slots evict each other's experts within a step, so one layer's fill changes another's row.
class shared_slots : public testing::TestWithParam<pace> {};

TEST_P(shared_slots, give_the_bits_of_a_decode_without_slots) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed)
    for (const auto mode : all_modes)
      for (const std::int64_t slots : {4, 9}) {
        SCOPED_TRACE("seed " + std::to_string(seed) + ", " + std::string(name_of(mode)));
        fake_machine machine(GetParam(), seed);
        constexpr std::size_t steps = 10;
        const small_model model(machine, shape_named("small-fp8"), steps,
                                {.zipf = 1.0, .stickiness = 0.5, .seed = seed});
        const auto wanted =
            reference_decode(model.shape, model.weights.source(), model.routing, steps);
        auto experts = paged(machine, model,
                             hotset::pool_layout::shared(model.shape.geometry(), slots).value());
        decoder loop(machine.parts, model.shape, experts, mode, routing_known::ahead);
        for (std::size_t s = 0; s < steps; ++s) {
          const auto hidden = loop.step(model.routing.ids(s), model.routing.weights(s));
          ASSERT_EQ(std::vector<float>(hidden.begin(), hidden.end()), wanted[s]);
        }
        EXPECT_THAT(machine.api.violations(), testing::IsEmpty());
      }
}

INSTANTIATE_TEST_SUITE_P(paces, shared_slots,
                         testing::Values(pace::late, pace::soon, pace::random));

TEST(step_graphs, list_the_missing_in_the_order_of_their_first_appearance) {
  fake_machine machine;
  small_loop small(machine, machine.kernels, decode_mode::step_graph);
  auto& loop = small.loop;
  const auto ids = hotset::support::expert_ids({7, 3, 5, 5, -1, 9});
  const std::vector<float> weights(6, 0.5F);
  (void)loop.step(ids, weights);  // nothing is resident yet
  EXPECT_THAT(loop.missing(0_layer), testing::ElementsAre(7, 3));
  EXPECT_THAT(loop.missing(1_layer), testing::ElementsAre(5));
  EXPECT_THAT(loop.missing(2_layer), testing::ElementsAre(9));
  EXPECT_EQ(loop.counts().missing_experts, 4U);
  EXPECT_EQ(loop.counts().skipped_places, 5U);  // the repeated one twice, the absent id never
  (void)loop.step(ids, weights);
  EXPECT_THAT(loop.missing(0_layer), testing::IsEmpty());
  EXPECT_EQ(loop.counts().replayed_steps, 1U);
}

TEST(step_graphs, are_refused_if_the_host_decides_copies_within_a_step) {
  fake_machine machine;
  const small_model model(machine, shape_named("small-bf16"), 1);
  auto stream = hotset::cuda::stream::create(machine.api, 0).value();
  static_experts part(machine.api, model.shape.geometry(), {model.shape.layout()},
                      model.weights.source(), model.pages, {.resident_layers = 2}, stream);
  EXPECT_THROW(
      decoder(machine.parts, model.shape, part, decode_mode::step_graph, routing_known::ahead),
      std::invalid_argument);
}

TEST(step_graphs, notice_a_mirror_that_lists_less_than_was_skipped) {
  fake_machine machine;
  const std::vector<hotset::slot_id> all_present(16, 0_slot);
  bent_kernels bent(
      machine.kernels, [](expert_arguments&) {},
      [&](hotset::cuda::mirror_arguments& a) { a.row = all_present.data(); });
  small_loop small(machine, bent, decode_mode::step_graph);
  EXPECT_THAT([&] { small.step(); }, testing::ThrowsMessage<std::logic_error>(
                                         "the mirror listed 0 experts, but 6 places were skipped"));
}

TEST(step_graphs, notice_a_device_map_that_the_host_does_not_have) {
  fake_machine machine;
  const std::vector<hotset::slot_id> all_present(16, 0_slot);
  bent_kernels bent(
      machine.kernels, [&](expert_arguments& a) { a.row = all_present.data(); },
      [&](hotset::cuda::mirror_arguments& a) { a.row = all_present.data(); });
  small_loop small(machine, bent, decode_mode::step_graph);
  EXPECT_THAT([&] { small.step(); }, testing::ThrowsMessage<std::logic_error>(
                                         "the graph missed nothing, but the host's map did"));
}

TEST(layer_graphs, are_captured_once) {
  constexpr std::size_t steps = 5;
  fake_machine machine(pace::random, 2);
  const small_model model(machine, shape_named("small-mxfp4"), steps);
  {
    auto experts = paged(machine, model, 3);
    decoder loop(machine.parts, model.shape, experts, decode_mode::layer_graphs,
                 routing_known::in_time);
    for (std::size_t s = 0; s < steps; ++s)
      (void)loop.step(model.routing.ids(s), model.routing.weights(s));
    EXPECT_EQ(machine.graphs.captures(), 3U);
    EXPECT_EQ(machine.graphs.launches(), 3 * steps);
    EXPECT_EQ(machine.graphs.leaks(), 3U);
  }
  EXPECT_EQ(machine.graphs.leaks(), 0U);
  EXPECT_THAT(machine.api.violations(), testing::IsEmpty());
}

TEST(a_decoder, reports_which_call_failed) {
  for (const char* const call : {"cudaMemcpyBatchAsync", "cudaStreamSynchronize"}) {
    SCOPED_TRACE(call);
    fake_machine machine;
    small_loop small(machine, machine.kernels, decode_mode::eager, routing_known::in_time);
    machine.api.fail(call, 1, hotset::cuda::error_code::unknown);
    EXPECT_THAT([&] { small.step(); }, testing::ThrowsMessage<device_error>(testing::AllOf(
                                           testing::HasSubstr(call), testing::HasSubstr("999"))));
  }
}

TEST(a_decoder, waits_for_the_routing_if_the_host_decides) {
  const auto waits = [](std::int32_t resident, routing_known known) {
    fake_machine machine;
    const small_model model(machine, shape_named("small-bf16"), 1);
    auto stream = hotset::cuda::stream::create(machine.api, 0).value();
    static_experts part(machine.api, model.shape.geometry(), {model.shape.layout()},
                        model.weights.source(), model.pages, {.resident_layers = resident}, stream);
    decoder loop(machine.parts, model.shape, part, decode_mode::eager, known);
    const auto before = machine.api.calls("cudaStreamSynchronize");
    (void)loop.step(model.routing.ids(0), model.routing.weights(0));
    return machine.api.calls("cudaStreamSynchronize") - before;
  };
  EXPECT_EQ(waits(0, routing_known::in_time), 3U + 1U);
  EXPECT_EQ(waits(2, routing_known::in_time), 1U + 1U);
  EXPECT_EQ(waits(3, routing_known::in_time), 1U);
  EXPECT_EQ(waits(0, routing_known::ahead), 1U);
}

TEST(a_decoder, refuses_a_step_of_another_shape) {
  fake_machine machine;
  small_loop small(machine, machine.kernels, decode_mode::eager);
  EXPECT_THROW(
      (void)small.loop.step(small.model.routing.ids(0).first(5), small.model.routing.weights(0)),
      std::invalid_argument);
}

}  // namespace
}  // namespace cuda_decode::decoder_test
