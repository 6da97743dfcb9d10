// SPDX-License-Identifier: Apache-2.0
#include "lab/studies/place_experts.hpp"

#include <array>
#include <cstddef>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/core/numbers/splitmix64.hpp"
#include "lab/errors.hpp"

namespace place_experts_test {
namespace {

using namespace hotset;
using lab::step_sample;

/// `sequences` of `length` tokens in one layer. The expert of a token is its sequence.
routing_trace made(std::uint32_t sequences, std::uint32_t length) {
  routing_trace out;
  out.name = "made";
  out.layers = 1;
  out.experts = static_cast<std::int32_t>(sequences);
  out.top_k = 1;
  for (std::uint32_t s = 0; s < sequences; ++s)
    for (std::uint32_t t = 0; t < length; ++t) {
      out.step.push_back(s * length + t);
      out.sequence.push_back(s);
      out.kind.push_back(request_class::decode);
      out.ids.push_back(static_cast<expert_id>(s));
    }
  return out;
}

TEST(step_sample, takes_own_steps_at_equal_distances) {
  const auto trace = made(4, 25);
  const std::array<const routing_trace*, 1> traces{&trace};
  const step_sample all(traces, {.running = 0, .steps = 1000});
  EXPECT_EQ(all.steps(), 100U);
  const step_sample four(traces, {.running = 0, .steps = 4});
  ASSERT_EQ(four.steps(), 4U);
  for (std::size_t s = 0; s < 4; ++s) EXPECT_EQ(four.ids(s, 0_layer)[0], s);
}

TEST(step_sample, draws_batches_from_the_sequences_of_all_traces) {
  const auto a = made(8, 10);
  auto b = made(8, 10);
  const std::array<const routing_trace*, 2> traces{&a, &b};
  const step_sample drawn(traces, {.running = 64, .steps = 40, .halves = false});
  EXPECT_EQ(drawn.steps(), 40U);
  const auto sums = drawn.loads(0_layer).sums();
  for (const auto sum : sums) EXPECT_GT(sum, 0U);
  for (std::size_t s = 0; s < 40; ++s) EXPECT_EQ(drawn.ids(s, 0_layer).size(), 64U);
}

TEST(step_sample, draws_each_few_steps_from_half_of_the_sequences) {
  const auto trace = made(16, 10);
  const std::array<const routing_trace*, 1> traces{&trace};
  const step_sample drawn(traces, {.running = 200, .steps = 20, .halves = true});
  std::set<std::set<expert_id>> halves;
  for (std::size_t s = 0; s < 20; ++s) {
    const auto ids = drawn.ids(s, 0_layer);
    EXPECT_LE(std::set(ids.begin(), ids.end()).size(), 8U);
    if (s % 2 == 0) halves.insert(std::set(ids.begin(), ids.end()));
  }
  EXPECT_GT(halves.size(), 1U);
}

TEST(step_sample, refuses_traces_of_two_models) {
  const auto a = made(8, 10);
  const auto b = made(9, 10);
  const std::array<const routing_trace*, 2> traces{&a, &b};
  EXPECT_THROW(step_sample(traces, {}), lab::usage_error);
}

TEST(place_layers, places_what_the_library_places) {
  auto trace = made(12, 30);
  splitmix64 random(3);
  trace.layers = 3;
  trace.ids.resize(3 * trace.tokens());
  for (auto& e : trace.ids) e = static_cast<expert_id>(random.below(3) * random.below(5));
  const std::array<const routing_trace*, 1> traces{&trace};
  const step_sample sample(traces, {.running = 24, .steps = 40});
  const auto shape = placement_shape::of(12, 4, 4).value();
  const auto placed = lab::place_layers(sample, shape, {}, {}, 3);
  ASSERT_EQ(placed.size(), 3U);
  for (const auto l : each<layer_id>(3))
    EXPECT_EQ(placed[index_of(l)], place_by_steps(shape, sample.loads(l)).value());
  const auto packed = lab::pack_layers(sample, shape);
  const auto score = [&](const auto& layers) {
    return lab::score_layers(sample, shape, layers, 2).even.excess();
  };
  EXPECT_LT(score(placed), score(packed));
}

}  // namespace
}  // namespace place_experts_test
