// SPDX-License-Identifier: Apache-2.0
/// Plans of several devices: each device's share, compared with a plan of one device and a replay of its experts.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/core/numbers/units.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/paging/pager.hpp"
#include "hotset/trace/visit_sequence.hpp"
#include "json_of.hpp"
#include "lab/errors.hpp"
#include "lab/reports/plan_report.hpp"
#include "lab/studies/plan.hpp"
#include "sim_samples.hpp"

namespace hotset::device_share_test {
namespace {

using testing::Each;
using testing::HasSubstr;

/// Four layers of twenty experts of 1000 bytes, top-3; tokens keep 40 bytes, and a session needs 1280.
lab::plan_request small(std::uint32_t devices, lab::device_split split, std::uint64_t device) {
  lab::plan_request r;
  r.model.name = "small";
  r.model.experts = {.layers = 4, .experts = 20, .top_k = 3, .expert_bytes = {1000}};
  r.model.resident_bytes = 500;
  r.model.kv = {{.layers = 4, .bytes_per_token = 10}};
  r.devices = devices;
  r.split = split;
  r.device_bytes = device;
  r.context = 32;
  r.concurrency = 4;
  r.cost = {.seconds_per_byte = 1e-6, .recompute_seconds_per_token = 1e-4};
  return r;
}
routing_trace trace_of(std::uint64_t seed) {
  return support::random_trace(seed, {.layers = 4, .experts = 20, .top_k = 3, .steps = 150});
}

/// Bytes that LRU copies for the experts [first, first + count) with these quotas.
std::uint64_t misses_of(const routing_trace& trace, expert_id first, std::int32_t count,
                        const std::vector<std::uint64_t>& quotas) {
  const geometry shape{.layers = trace.layers,
                       .experts = count,
                       .top_k = trace.top_k,
                       .max_tokens_per_visit = 1,
                       .expert_bytes = {1}};
  const std::vector<std::int64_t> slots(quotas.begin(), quotas.end());
  pager<lru> cache({.layout = pool_layout::per_layer(shape, slots).value()});
  auto plan = cache.make_plan();
  for (std::size_t t = 0; t < trace.tokens(); ++t)
    for (const auto l : each<layer_id>(trace.layers)) {
      std::vector<expert_id> mine;
      for (const auto id : trace.ids_of(t, l))
        mine.push_back(id >= first && id < first + count ? expert_id{id - first} : no_expert);
      if (std::ranges::all_of(mine, [](expert_id id) { return id < 0; })) continue;
      EXPECT_EQ(
          cache.plan({.layer = l, .step = static_cast<std::uint32_t>(t), .experts = mine}, plan),
          status::ok);
      EXPECT_EQ(cache.commit(plan), status::ok);
    }
  return cache.stats().misses;
}

/// Reads "accepted: 6.1KiB (6240B) or more" or "accepted: 8KiB or more".
std::uint64_t least_bytes_of(const std::string& why) {
  const auto begin = why.find("accepted: ") + 10;
  const auto least = why.substr(begin, why.find(" or more", begin) - begin);
  const auto exact = least.find('(');
  return exact == std::string::npos ? parse_bytes(least).value()
                                    : std::stoull(least.substr(exact + 1));
}

TEST(device_share, experts_are_on_one_device_with_the_misses_of_a_replay) {
  for (const std::uint32_t devices : {2U, 3U, 4U, 6U})
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      SCOPED_TRACE(std::to_string(devices) + " devices, seed " + std::to_string(seed));
      const auto trace = trace_of(seed);
      auto request = small(devices, lab::device_split::expert,
                           500 + (4 + devices - 1) / devices * 1280 + 13'500);
      request.concurrency = 1;  // as in a step of the trace
      request.routing = &trace;
      const auto plan = lab::make_plan(request);
      ASSERT_EQ(plan.devices.size(), devices);
      std::uint64_t next = 0;
      double slowest = 0;
      for (const auto& d : plan.devices) {
        EXPECT_EQ(d.first_expert, next);
        next += d.experts;
        EXPECT_THAT(d.experts, testing::AnyOf(20 / devices, 20 / devices + 1));
        EXPECT_THAT(d.quotas, Each(testing::Le(d.experts)));
        const auto missed = misses_of(trace, static_cast<expert_id>(d.first_expert),
                                      static_cast<std::int32_t>(d.experts), d.quotas);
        EXPECT_NEAR(d.seconds, static_cast<double>(missed) / 150 * 1e-3, 1e-12);
        slowest = std::max(slowest, d.seconds);
      }
      EXPECT_EQ(next, 20U);
      EXPECT_EQ(plan.seconds, slowest) << "a step waits for it";
      EXPECT_EQ(support::json_of(plan)["devices"].size(), devices);
    }
}

TEST(device_share, a_part_of_every_expert_is_a_model_of_smaller_experts) {
  const auto trace = lab::side_by_side(trace_of(7), 4);
  for (const std::uint32_t devices : {2U, 3U, 8U}) {
    auto request = small(devices, lab::device_split::tensor, 11'000);
    request.routing = &trace;
    const auto cut = lab::make_plan(request);
    auto alone = small(1, lab::device_split::tensor, 11'000);
    alone.routing = &trace;
    alone.model.experts.expert_bytes = {(1000 + devices - 1) / devices};
    alone.concurrency = (4 + devices - 1) / devices;
    const auto same = lab::make_plan(alone);
    EXPECT_EQ(cut.quotas.quotas, same.quotas.quotas);
    EXPECT_EQ(cut.kv_blocks, same.kv_blocks);
    EXPECT_DOUBLE_EQ(cut.seconds, same.seconds);
    EXPECT_EQ(cut.devices.size(), devices);
    EXPECT_EQ(cut.request.model.experts.bytes_of(0_layer), 1000U)
        << "the model is the one that was asked";
  }
}

// Uniform routing: with four tokens, an expert is drawn equally often, whichever device has it.
TEST(device_share, all_tokens_draw_the_experts_of_every_device) {
  const auto one = lab::make_plan(small(1, lab::device_split::expert, 500 + 5'120 + 80'000));
  const auto two = lab::make_plan(small(2, lab::device_split::expert, 500 + 2'560 + 40'000));
  EXPECT_TRUE(one.is_all_resident());
  EXPECT_TRUE(two.is_all_resident());
  const auto half = lab::make_plan(small(1, lab::device_split::expert, 500 + 5'120 + 40'000));
  const auto quarter = lab::make_plan(small(2, lab::device_split::expert, 500 + 2'560 + 24'000));
  EXPECT_NEAR(half.hit_rate, 0.5, 1e-9);
  EXPECT_NEAR(quarter.hit_rate, 0.6, 1e-9);
  EXPECT_NEAR(quarter.seconds / half.seconds, (0.4 * 10) / (0.5 * 20), 1e-9);
}

TEST(device_share, requests_are_dealt_out) {
  const auto trace = trace_of(2);
  kv_trace kv;
  kv.block_tokens = 16;
  for (std::uint64_t r = 0; r < 300; ++r) {
    kv.timestamp.push_back(r);
    kv.input_length.push_back(16);
    kv.output_length.push_back(4);
    kv.blocks.push_back(r % 2 == 0 ? r / 2 % 6 : 100);  // the second device's: one prefix
    kv.block_end.push_back(kv.blocks.size());
  }
  auto request = small(2, lab::device_split::tensor, 500 + 640 * 16 + 8'000);
  request.cost.recompute_seconds_per_token = 1;
  request.context = 16;
  request.concurrency = 2;
  request.routing = &trace;
  request.requests = &kv;
  const auto plan = lab::make_plan(request);
  EXPECT_GE(plan.devices[0].kv_blocks, 6U);
  EXPECT_GT(plan.devices[0].seconds, plan.devices[1].seconds);
}

TEST(device_share, a_device_that_nothing_is_routed_to_is_planned_too) {
  auto trace = trace_of(3);
  for (std::size_t i = 0; i < trace.ids.size(); ++i) trace.ids[i] = static_cast<expert_id>(i % 3);
  auto request = small(3, lab::device_split::expert, 500 + 2'560 + 13'500);
  request.routing = &trace;
  const auto plan = lab::make_plan(request);
  ASSERT_EQ(plan.devices.size(), 3U);
  EXPECT_EQ(plan.devices[2].seconds, 0);
}

TEST(device_share, invalid_values_are_refused_with_the_accepted_range) {
  const auto refused = [](const lab::plan_request& r) {
    return support::refusal<lab::usage_error>([&] { (void)lab::make_plan(r); });
  };
  EXPECT_EQ(refused(small(21, lab::device_split::expert, 90'000)),
            "devices = 21, accepted: 1..20, the experts of a layer");
  EXPECT_THAT(refused(small(0, lab::device_split::tensor, 90'000)), HasSubstr("accepted: 1..1000"));
  EXPECT_THAT(refused(small(1001, lab::device_split::tensor, 90'000)),
              HasSubstr("a byte of an expert on each"));
  // The named bytes and number are enough; one less is not.
  for (const auto split : {lab::device_split::expert, lab::device_split::tensor}) {
    const auto why = support::refusal<lab::infeasible_error>(
        [&] { (void)lab::make_plan(small(2, split, 3'000)); });
    EXPECT_THAT(why, HasSubstr("each of 2 devices of 2.9 KiB"));
    // Then vLLM, which serves several devices alone, names what it needs beside the sessions' tokens.
    const auto of_vllm = support::refusal<lab::infeasible_error>(
        [&] { (void)lab::make_plan(small(2, split, least_bytes_of(why))); });
    EXPECT_THAT(of_vllm, HasSubstr("vllm left out: its cache has 640 B beside"));
    const auto bytes = least_bytes_of(of_vllm);
    EXPECT_NO_THROW((void)lab::make_plan(small(2, split, bytes)));
    EXPECT_THROW((void)lab::make_plan(small(2, split, bytes - 1)), lab::infeasible_error);
    const auto count =
        static_cast<std::uint32_t>(std::stoul(why.substr(why.find("or more, or ") + 12)));
    EXPECT_NO_THROW((void)lab::make_plan(small(count, split, 3'000)));
    EXPECT_THROW((void)lab::make_plan(small(count - 1, split, 3'000)), lab::infeasible_error);
  }
  EXPECT_THAT(support::refusal<lab::infeasible_error>(
                  [&] { (void)lab::make_plan(small(2, lab::device_split::expert, 400)); }),
              testing::EndsWith("or more"))
      << "no number holds what each must have";
}

}  // namespace
}  // namespace hotset::device_share_test
