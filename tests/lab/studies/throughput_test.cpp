// SPDX-License-Identifier: Apache-2.0
/// Speeds of placements, recomputed by hand.
#include "lab/studies/throughput.hpp"

#include <cmath>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/core/numbers/units.hpp"
#include "lab/studies/plan.hpp"

namespace hotset::throughput_test {
namespace {

/// Two layers of ten experts of 100 bytes and 50 parameters, top-2; 1000 bytes and 400 parameters for all tokens.
lab::plan_request small() {
  lab::plan_request r;
  r.model.experts = {.layers = 2, .experts = 10, .top_k = 2, .expert_bytes = {100}};
  r.model.resident_bytes = 1000;
  r.model.kv = {{.layers = 2, .bytes_per_token = 3}};
  r.arithmetic = {.hidden = 4,
                  .vocabulary = 5,
                  .lookup_bytes = 100,
                  .resident_parameters = 400,
                  .expert_parameters = 50};
  r.context = 10;
  r.ubatch = 64;
  r.cost.seconds_per_byte = 0.1;
  r.speeds = {.device_bandwidth = 100,
              .device_flops = 1e9,
              .host_bandwidth = 20,
              .host_flops = 1e9,
              .disk_bandwidth = 2};
  return r;
}
/// Uniform routing of one token.
lab::expert_curves uniform() {
  std::vector<double> misses;
  for (int slots = 0; slots <= 10; ++slots) misses.push_back(2 * (1 - slots / 10.0));
  lab::expert_curves out;
  out.layers.assign(2, sampled_miss_curve(misses));
  out.used.assign(2, 2.0);
  return out;
}
lab::placement places(const lab::expert_place& first, const lab::expert_place& second = {}) {
  return {.layers = {first, second}};
}
double decode_seconds(const lab::plan_request& r, const lab::placement& p) {
  return 1 / lab::rates_of(r, uniform(), p).decode;
}

// 900 bytes of weights, 60 of the cache; 200 of the experts of a layer.
constexpr double rest = (900 + 60) / 100.0;

TEST(throughput, a_step_is_the_sum_of_its_bytes_over_their_speeds) {
  const auto r = small();
  EXPECT_NEAR(decode_seconds(r, places({})), rest + 400 / 100.0, 1e-9) << "all on the device";
  EXPECT_NEAR(decode_seconds(r, places({.on_device = 0})), rest + 2 + 200 / 20.0, 1e-9);
  EXPECT_NEAR(decode_seconds(r, places({.on_device = 0, .host_computes = false})), rest + 4 + 20,
              1e-9)
      << "copied, then read by the device";
  EXPECT_NEAR(
      decode_seconds(r, places({.on_device = 0, .host_computes = false, .copies_all = true})),
      rest + 4 + 100, 1e-9);
  auto cold = places({.on_device = 0});
  cold.in_ram = 0.4;
  EXPECT_NEAR(decode_seconds(r, cold), rest + 2 + 10 + 2 * 0.6 * 100 / 2.0, 1e-9);
  auto paged = places({.on_device = 0.3, .host_computes = false},
                      {.on_device = 0.3, .host_computes = false});
  paged.evicts = true;
  EXPECT_NEAR(decode_seconds(r, paged), rest + 4 + 2 * 1.4 * 100 * 0.1, 1e-9);
  paged.in_ram = 0.5;
  EXPECT_NEAR(decode_seconds(r, paged), rest + 4 + 28 + 2 * 1.0 * 100 / 2, 1e-9);
  auto beside = places({.on_device = 0.5});
  beside.overlaps = true;
  EXPECT_NEAR(decode_seconds(r, beside), std::max(rest + 3, 100 / 20.0), 1e-9);
  auto host = places({.on_device = 0}, {.on_device = 0});
  host.has_device = false;
  EXPECT_NEAR(decode_seconds(r, host), (900 + 60 + 400) / 20.0, 1e-9);
}

TEST(throughput, operations_count_if_they_are_slower_than_bytes) {
  auto r = small();
  r.speeds.device_flops = 10;
  r.speeds.host_flops = 5;
  EXPECT_NEAR(decode_seconds(r, places({})), 2 * (400 + 4 * 50) / 10.0, 1e-9);
  EXPECT_NEAR(decode_seconds(r, places({.on_device = 0})),
              2 * (400 + 2 * 50) / 10.0 + 2 * 2 * 50 / 5.0, 1e-9);
}

TEST(throughput, prompts_copy_the_hosts_experts_once_a_batch) {
  auto r = small();
  auto p = places({.on_device = 0});
  p.copies_from = 32;
  const auto used = 10 * (1 - std::pow(0.8, 64));
  const auto batch = [&] { return 64 / *lab::rates_of(r, uniform(), p).prompt; };
  EXPECT_NEAR(batch(), 900 / 100.0 + 2 * used + used * 100 * 0.1, 1e-9);
  p.copies_from = 65;
  EXPECT_NEAR(batch(), 900 / 100.0 + used + used * 100 / 20.0, 1e-9);
  r.arithmetic.expert_parameters = 0;
  EXPECT_FALSE(lab::rates_of(r, uniform(), p).prompt) << "unknown operations";
}

TEST(throughput, activations_grow_with_batch_and_context) {
  auto r = small();
  r.arithmetic = {.hidden = 2048, .vocabulary = 151936};
  r.context = 32768;
  r.ubatch = 512;
  EXPECT_EQ(lab::activation_bytes(r), 512_MiB + 512 * (4 * 151936 + 2 * 32768 + 32 * 2048));
  r.arithmetic.vocabulary = 0;
  EXPECT_EQ(lab::activation_bytes(r), 0U) << "unknown";
}

}  // namespace
}  // namespace hotset::throughput_test
