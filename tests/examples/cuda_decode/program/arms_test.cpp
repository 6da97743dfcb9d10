// SPDX-License-Identifier: Apache-2.0
// Every arm in every mode gives the bits of a decode without slots, and moves as many bytes as it reports.

#include "cuda_decode/program/arms.hpp"

#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cuda_decode/model/reference_decode.hpp"
#include "fake_machine.hpp"

namespace cuda_decode::arms_test {
namespace {

using namespace hotset::literals;

struct setting {
  std::string name;
  std::string shape;
  pace how;
  routing_known known;
  friend void PrintTo(const setting& s, std::ostream* out) { *out << s.name; }
};

class arms : public testing::TestWithParam<setting> {};

TEST_P(arms, all_give_the_bits_of_a_decode_without_slots) {
  constexpr std::size_t steps = 6;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    fake_machine machine(GetParam().how, seed);
    const small_model model(machine, shape_named(GetParam().shape), steps,
                            {.zipf = 0.6, .stickiness = 0.4, .seed = seed});
    const auto wanted = reference_decode(model.shape, model.weights.source(), model.routing, steps);
    std::uint64_t hash = 0;
    for (const auto& hidden : wanted) hash = hashed(hash, hidden);
    const std::vector<std::int32_t> caps = {2, 5, 16};
    const auto list = arms_of(model.shape, caps, all_modes, offload_fetch::routed);
    EXPECT_EQ(list.size(), 2U + 3U + 2U + 3U + 3U + 3U);  // no static arm within all slots
    for (const auto& what : list) {
      SCOPED_TRACE(what.name(model.shape) + " " + std::string(name_of(what.mode)));
      const auto result = run_arm(model.compare(machine.parts, 0, GetParam().known), what);
      EXPECT_EQ(result.hash, hash);
      EXPECT_EQ(result.hidden, wanted.back());
    }
    EXPECT_THAT(machine.api.violations(), testing::IsEmpty());
    EXPECT_EQ(machine.api.synchronous_copies(), 0U);
    EXPECT_EQ(machine.graphs.leaks(), 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(
    settings, arms,
    testing::Values(setting{"bf16_late", "small-bf16", pace::late, routing_known::ahead},
                    setting{"bf16_random", "small-bf16", pace::random, routing_known::ahead},
                    setting{"fp8_late", "small-fp8", pace::late, routing_known::ahead},
                    setting{"fp8_random", "small-fp8", pace::random, routing_known::ahead},
                    setting{"fp8_random_in_time", "small-fp8", pace::random,
                            routing_known::in_time},
                    setting{"mxfp4_random", "small-mxfp4", pace::random, routing_known::ahead}),
    [](const auto& p) { return p.param.name; });

TEST(arms_compared, a_kernel_that_reads_another_slot_or_another_layers_row_is_noticed) {
  struct row {
    int visit;
    bent_kernels::bend change;
    arm what;
  };
  const std::vector<row> rows = {
      // One of four tensors is read from slot 0.
      {5, [](expert_arguments& a) { a.bank.stride[0] = 0; }, {.kind = arm_kind::hotset, .cap = 5}},
      // Layer 2 looks up its experts in layer 1's row.
      {6, [](expert_arguments& a) { a.row -= a.experts; }, {.kind = arm_kind::full_residency}},
  };
  for (const auto& r : rows) {
    fake_machine machine;
    const small_model model(machine, shape_named("small-fp8"), 4);
    int visit = 0;
    bent_kernels bent(machine.kernels, [&](expert_arguments& a) {
      if (++visit == r.visit) r.change(a);
    });
    std::vector<arm_result> results;
    results.push_back(run_arm(model.compare(machine.parts), {.kind = arm_kind::full_residency}));
    results.push_back(run_arm(model.compare(machine.with(bent)), r.what));
    EXPECT_THAT(differences(results, model.shape),
                testing::ElementsAre(testing::HasSubstr("differs from full residency (eager)")));
  }
}

TEST(arms_compared, one_wrong_byte_of_one_scale_is_noticed) {
  fake_machine machine;
  const small_model model(machine, shape_named("small-fp8"), 4);
  const auto before = run_arm(model.compare(machine.parts), {.kind = arm_kind::full_residency});
  const auto scales =
      model.weights.source().tensors({1_layer, model.routing.ids(3, 1_layer)[0]}, 0_precision)[3];
  auto* const byte = const_cast<std::byte*>(scales.data()) + 3;  // host_weights made it writable
  *byte ^= std::byte{0x01};
  const auto after = run_arm(model.compare(machine.parts), {.kind = arm_kind::full_residency});
  EXPECT_NE(before.hash, after.hash);
}

TEST(arms_compared, a_place_without_a_slot_stops_an_eager_run) {
  fake_machine machine;
  const small_model model(machine, shape_named("small-bf16"), 2);
  const std::vector<hotset::slot_id> absent(16, hotset::no_slot);
  bent_kernels bent(machine.kernels, [&](expert_arguments& a) { a.row = absent.data(); });
  EXPECT_THROW(
      { (void)run_arm(model.compare(machine.with(bent)), {.kind = arm_kind::hotset, .cap = 4}); },
      std::logic_error);
}

TEST(static_offload, moves_its_closed_form) {
  constexpr std::size_t steps = 7;
  constexpr std::size_t warmup = 2;
  for (const auto fetch : {offload_fetch::routed, offload_fetch::layer})
    for (std::int32_t resident = 0; resident <= 3; ++resident) {
      SCOPED_TRACE("resident " + std::to_string(resident));
      fake_machine machine(pace::random, 9);
      const small_model model(machine, shape_named("small-mxfp4"), steps);
      const auto result = run_arm(model.compare(machine.parts, warmup, routing_known::ahead, fetch),
                                  {.kind = arm_kind::static_offload, .resident_layers = resident});
      const auto& shape = model.shape;
      const auto each = fetch == offload_fetch::layer ? shape.experts : shape.top_k;
      EXPECT_EQ(result.traffic.bytes_moved,
                (steps - warmup) * static_cast<std::uint64_t>(3 - resident) *
                    static_cast<std::uint64_t>(each) * shape.expert_bytes());
      EXPECT_EQ(result.traffic.accesses, (steps - warmup) * 3U * 2U);
      EXPECT_EQ(result.traffic.hits, (steps - warmup) * static_cast<std::uint64_t>(resident) * 2U);
      EXPECT_THAT(machine.api.violations(), testing::IsEmpty());
    }
}

TEST(static_offload, takes_no_more_slots_than_it_is_compared_with) {
  const auto qwen = shape_named("qwen3-30b-a3b").geometry();
  // 768 slots: 5 layers of 128, and 8 that the other 43 share. 6 layers and 8 would need 776.
  EXPECT_EQ(static_layers_within(qwen, 16 * 48, offload_fetch::routed), 5);
  EXPECT_EQ(static_layers_within(qwen, 16 * 48, offload_fetch::layer), 5);
  EXPECT_EQ(static_layers_within(qwen, 128 * 48, offload_fetch::routed), 48);
  EXPECT_EQ(static_layers_within(qwen, 128 * 48 - 1, offload_fetch::routed), 47);
  EXPECT_EQ(static_layers_within(qwen, 8, offload_fetch::routed), 0);
  EXPECT_EQ(static_layers_within(qwen, 8, offload_fetch::layer), -1);
  EXPECT_EQ(static_slots(qwen, {.resident_layers = 5}), 5 * 128 + 8);
  EXPECT_EQ(static_slots(qwen, {.resident_layers = 48}), 48 * 128);
}

TEST(hotset_arm, copies_its_misses) {
  constexpr std::size_t steps = 8;
  fake_machine machine(pace::random, 4);
  const small_model model(machine, shape_named("small-fp8"), steps);
  const auto result = run_arm(model.compare(machine.parts), {.kind = arm_kind::hotset, .cap = 3});
  EXPECT_EQ(result.traffic.accesses, model.routing.distinct(0, steps));
  EXPECT_EQ(result.traffic.bytes_moved,
            (result.traffic.accesses - result.traffic.hits) * model.shape.expert_bytes());
  EXPECT_LT(result.traffic.hits, result.traffic.accesses);
}

TEST(hotset_arm, with_room_for_all_moves_each_expert_once) {
  constexpr std::size_t steps = 8;
  fake_machine machine;
  const small_model model(machine, shape_named("small-bf16"), steps);
  std::set<std::pair<hotset::layer_id, hotset::expert_id>> used;
  for (const auto l : hotset::each<hotset::layer_id>(3))
    for (std::size_t s = 0; s < steps; ++s)
      for (const auto id : model.routing.ids(s, l)) used.emplace(l, id);
  for (const auto mode : all_modes) {
    const auto result =
        run_arm(model.compare(machine.parts), {.kind = arm_kind::hotset, .cap = 16, .mode = mode});
    EXPECT_EQ(result.traffic.bytes_moved, used.size() * model.shape.expert_bytes());
  }
}

TEST(caps, fit_the_experts) {
  using testing::ElementsAre;
  EXPECT_THAT(default_caps(shape_named("qwen3-30b-a3b")), ElementsAre(16, 32, 64, 128));
  EXPECT_THAT(default_caps(shape_named("olmoe")), ElementsAre(16, 32, 64));
  EXPECT_THAT(default_caps(shape_named("mixtral-8x7b")), ElementsAre(2, 4, 6, 8));
  EXPECT_THAT(default_caps(shape_named("minimax-m2")), ElementsAre(16, 32, 64, 256));
}

TEST(a_hash, depends_on_order_and_sign) {
  const std::vector<float> a = {1, 2};
  const std::vector<float> b = {2, 1};
  const std::vector<float> zero = {0.0F};
  const std::vector<float> minus = {-0.0F};
  EXPECT_NE(hashed(0, a), hashed(0, b));
  EXPECT_NE(hashed(7, zero), hashed(7, minus));
}

}  // namespace
}  // namespace cuda_decode::arms_test
