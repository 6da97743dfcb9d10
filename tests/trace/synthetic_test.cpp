// SPDX-License-Identifier: Apache-2.0
#include "hotset/trace/synthetic.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

namespace {
using namespace hotset;

std::uint64_t fingerprint(const routing_trace& trace) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  const auto mix = [&](std::uint64_t value) { hash = (hash ^ value) * 0x100000001b3ULL; };
  for (const auto id : trace.ids) mix(static_cast<std::uint64_t>(id));
  for (const auto w : trace.weights) mix(std::bit_cast<std::uint32_t>(w));
  for (const auto s : trace.step) mix(s);
  return hash;
}

std::vector<std::uint64_t> counts(const routing_trace& trace, layer_id layer, std::size_t from,
                                  std::size_t to) {
  std::vector<std::uint64_t> out(static_cast<std::size_t>(trace.experts), 0);
  for (std::size_t t = from; t < to; ++t)
    for (const auto id : trace.ids_of(t, layer)) ++out[static_cast<std::size_t>(id)];
  return out;
}

TEST(synthetic, splitmix64_is_the_published_generator) {
  splitmix64 random(1234567);
  EXPECT_EQ(random.next(), 6457827717110365317ULL);
  EXPECT_EQ(random.next(), 3203168211198807973ULL);
}

TEST(synthetic, the_same_seed_gives_the_same_trace_on_every_machine) {
  const synthetic_config config{.sequences = 2,
                                .prefill = 8,
                                .tokens = 64,
                                .zipf = 1.2,
                                .stickiness = 0.5,
                                .phase_length = 50,
                                .seed = 7};
  const auto trace = synthetic_trace(config).value();
  EXPECT_EQ(fingerprint(trace), 16419722522490417801ULL);
  auto other = config;
  other.seed = 8;
  EXPECT_NE(fingerprint(synthetic_trace(other).value()), fingerprint(trace));
}

TEST(synthetic, popularity_follows_the_exponent) {
  for (const double s : {0.0, 0.5, 1.0, 2.5}) {
    const auto table = detail::zipf_table(64, s);
    for (std::size_t r = 0; r < 64; ++r) {
      const auto mass = table[r] - (r == 0 ? 0 : table[r - 1]);
      EXPECT_NEAR(static_cast<double>(mass) * 0x1p-40, std::pow(static_cast<double>(r + 1), -s),
                  1e-7);
    }
  }
}

TEST(synthetic, traces_are_valid_and_shaped_as_asked) {
  const auto trace =
      synthetic_trace(
          {.layers = 3, .experts = 16, .top_k = 4, .sequences = 2, .prefill = 10, .tokens = 5})
          .value();
  EXPECT_FALSE(trace.validate());
  EXPECT_EQ(trace.tokens(), 30U);
  EXPECT_EQ(trace.step[9], 0U);
  EXPECT_EQ(trace.step[10], 1U);
  EXPECT_EQ(trace.step[15], 6U);
  EXPECT_EQ(trace.sequence[15], 1U);
  EXPECT_EQ(trace.kind[9], request_class::prefill);
  EXPECT_EQ(trace.kind[10], request_class::decode);
  for (std::size_t t = 0; t < trace.tokens(); ++t)
    for (layer_id l = 0; l < 3; ++l) {
      std::vector<expert_id> ids(trace.ids_of(t, l).begin(), trace.ids_of(t, l).end());
      std::sort(ids.begin(), ids.end());
      EXPECT_EQ(std::adjacent_find(ids.begin(), ids.end()), ids.end()) << "distinct";
      const auto w = trace.weights_of(t, l);
      EXPECT_TRUE(std::is_sorted(w.rbegin(), w.rend()));
      EXPECT_NEAR(std::accumulate(w.begin(), w.end(), 0.0F), 1.0F, 1e-5F);
    }
}

TEST(synthetic, skew_stickiness_and_phases_do_what_they_say) {
  const auto flat = synthetic_trace({.top_k = 1, .tokens = 4000, .zipf = 0}).value();
  const auto steep = synthetic_trace({.top_k = 1, .tokens = 4000, .zipf = 2}).value();
  const auto most = [](const routing_trace& t) {
    const auto c = counts(t, 0, 0, t.tokens());
    return *std::max_element(c.begin(), c.end());
  };
  EXPECT_LT(most(flat), 4000U / 16);
  EXPECT_GT(most(steep), 4000U / 2);

  const auto repeats = [](const routing_trace& t) {
    std::size_t same = 0;
    for (std::size_t i = 1; i < t.tokens(); ++i)
      same += t.ids_of(i, 0)[0] == t.ids_of(i - 1, 0)[0] ? 1U : 0U;
    return same;
  };
  const auto sticky =
      synthetic_trace({.top_k = 1, .tokens = 4000, .zipf = 0, .stickiness = 0.9}).value();
  EXPECT_GT(repeats(sticky), 3400U);
  EXPECT_LT(repeats(flat), 400U);

  const auto phased =
      synthetic_trace({.top_k = 1, .tokens = 4000, .zipf = 2, .phase_length = 2000}).value();
  const auto first = counts(phased, 0, 0, 2000);
  const auto second = counts(phased, 0, 2000, 4000);
  EXPECT_NE(std::max_element(first.begin(), first.end()) - first.begin(),
            std::max_element(second.begin(), second.end()) - second.begin());
}

TEST(synthetic, all_experts_can_be_routed_at_once_however_steep) {
  const auto trace =
      synthetic_trace({.layers = 1, .experts = 32, .top_k = 32, .tokens = 4, .zipf = 8}).value();
  EXPECT_FALSE(trace.validate());
}

TEST(synthetic, refuses_a_configuration_with_the_accepted_range) {
  EXPECT_FALSE(synthetic_trace({.zipf = -1}));
  EXPECT_FALSE(synthetic_trace({.zipf = std::nan("")}));
  EXPECT_FALSE(synthetic_trace({.stickiness = 1.5}));
  EXPECT_FALSE(synthetic_trace({.sequences = 0}));
  EXPECT_FALSE(synthetic_trace({.experts = 2, .top_k = 3}));
}

}  // namespace
