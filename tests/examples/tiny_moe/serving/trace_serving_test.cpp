// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/serving/trace_serving.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/cache/live_view.hpp"
#include "lab/errors.hpp"
#include "lab/traces/synthetic/synthetic_requests.hpp"
#include "paging_samples.hpp"
#include "sample_of.hpp"
#include "sim_samples.hpp"
#include "tiny_moe/serving/request_shapes.hpp"
#include "tiny_moe/studies/calibration.hpp"

namespace trace_serving_test {
namespace {

using namespace paging_samples;
using hotset::lab::infeasible_error;
using hotset::lab::usage_error;
using hotset::support::refusal;
using ::testing::HasSubstr;

constexpr std::uint64_t slot_bytes = 12 * 23040;
constexpr std::uint64_t block_bytes = 8 * 9216;

std::vector<serving_request> conversations(std::uint32_t turns, std::uint32_t requests) {
  const auto kv = hotset::synthetic_requests({.requests = requests,
                                              .conversations = 3,
                                              .turns = turns,
                                              .first_blocks = 3,
                                              .turn_blocks = 1,
                                              .block_tokens = 512,
                                              .output_tokens = 256,
                                              .seed = 5});
  return shaped_requests(*kv, std::vector<std::string>{std::string(text)}, {.scale = 64});
}

/// A KV block computed again costs as much as 40 experts; blocks are of 8 tokens.
trace_serving_config config(std::uint64_t budget) {
  trace_serving_config out;
  out.budget_bytes = budget;
  out.block_tokens = 8;
  out.prices = {.seconds_per_byte = 1e-8, .recompute_seconds_per_token = 5 * 23040 * 1e-8};
  out.burst = 16;
  out.gate = 0;
  return out;
}

constexpr std::uint64_t budget_bytes = 16 * slot_bytes + 8 * block_bytes;

trace_serving_result served(std::span<const serving_request> requests, const split_choice& choice,
                            const trace_serving_config& setup = config(budget_bytes)) {
  return serve_trace(weights(), requests, setup, choice);
}
trace_serving_result served(std::span<const serving_request> requests, const std::string& split,
                            const trace_serving_config& setup = config(budget_bytes)) {
  return served(requests, split_choice::parse(split), setup);
}

TEST(trace_serving, a_view_sees_each_copy_and_changes_nothing) {
  const auto requests = conversations(4, 8);
  auto setup = config(budget_bytes);
  const auto plain = served(requests, "mv-wsa", setup);
  const auto view = hotset::live_view::create({}, served_shape(weights(), setup), "lru").value();
  setup.view = view.get();
  const auto seen = served(requests, "mv-wsa", setup);
  EXPECT_TRUE(same_outputs(std::vector{plain, seen}));
  EXPECT_EQ(seen.expert_misses, plain.expert_misses);
  const auto text = view->metrics().text();
  const auto value = [&](const std::string& name) {
    return hotset::support::sample_of(text, name);
  };
  EXPECT_EQ(value("hotset_misses_total"), static_cast<double>(seen.expert_misses));
  EXPECT_EQ(value("hotset_copy_seconds_count{copy=\"demand\"}"), value("hotset_fills_total"));
  EXPECT_EQ(value("hotset_link_bytes_total{copy=\"demand\"}"), value("hotset_demand_bytes_total"));
  EXPECT_EQ(value("hotset_budget_bytes"), static_cast<double>(budget_bytes));
  EXPECT_LE(value("hotset_budget_used_bytes"), static_cast<double>(budget_bytes));
  EXPECT_EQ(value("hotset_slots"), static_cast<double>(seen.last.cap) * 12);
}

TEST(trace_serving, every_split_gives_each_request_its_answer_alone) {
  const auto requests = conversations(4, 20);
  std::vector<trace_serving_result> runs;
  for (const auto* split : {"4", "12", "16", "mv-wsa", "dual-resize", "right-size"})
    runs.push_back(served(requests, split));
  EXPECT_TRUE(same_outputs(runs));
  for (std::size_t r = 0; r < requests.size(); r += 6)
    EXPECT_EQ(runs.front().served.requests[r].output, alone(requests[r])) << "request " << r;
  for (const auto& run : runs) {
    EXPECT_LE(run.peak_bytes, budget_bytes) << run.choice.name();
    EXPECT_LE(run.last.cap * slot_bytes + run.last.blocks * block_bytes, budget_bytes);
    EXPECT_EQ(run.split.refused, 0U);
  }
}

// Seconds are those of eq. 4 and nothing else.
TEST(trace_serving, seconds_are_the_cost_of_misses) {
  const auto requests = conversations(1, 6);
  const auto run = served(requests, "8");
  std::size_t prompt_bytes = 0;
  for (const auto& one : requests) prompt_bytes += one.prompt.size();
  EXPECT_EQ(run.prefilled_tokens, prompt_bytes);  // no request returns, none is preempted
  EXPECT_NEAR(run.kv_seconds, 5 * 23040 * 1e-8 * static_cast<double>(prompt_bytes), 1e-9);
  EXPECT_GT(run.expert_misses, 0U);
  EXPECT_NEAR(run.expert_seconds, 23040 * 1e-8 * static_cast<double>(run.expert_misses), 1e-9);
  EXPECT_DOUBLE_EQ(run.seconds, run.expert_seconds + run.kv_seconds);
}

TEST(trace_serving, requests_that_end_in_the_warm_up_are_not_counted) {
  const auto requests = conversations(4, 20);
  auto later = config(budget_bytes);
  later.warmup = 10;
  const auto all = served(requests, "8");
  const auto some = served(requests, "8", later);
  EXPECT_LT(some.expert_misses, all.expert_misses);
  EXPECT_LT(some.prefilled_tokens, all.prefilled_tokens);
  EXPECT_GT(some.prefilled_tokens, 0U);
  later.warmup = 20;
  EXPECT_THROW((void)served(requests, "8", later), usage_error);
}

// Both controllers move away from a split that suits neither consumer, towards the consumer that is used.
TEST(trace_serving, controllers_give_unused_kv_memory_to_experts) {
  const auto requests = conversations(1, 30);
  for (const auto rule : {split_rule::marginal_value, split_rule::dual_resize}) {
    const split_choice choice{.rule = rule, .cap = 5};
    const auto run = served(requests, choice);
    EXPECT_GT(run.last.cap, 10U) << choice.name();
    EXPECT_GT(run.split.moves, 0U) << choice.name();
    const auto fixed = served(requests, "5");
    EXPECT_LT(run.seconds, fixed.seconds) << choice.name();
  }
}

// Without a profile, KV gets its floor. With one, MV-WSA starts at its final split of that profile and stays.
TEST(trace_serving, a_controller_begins_at_the_configurators_split) {
  const auto requests = conversations(8, 60);
  const auto by_value = split_choice::parse("mv-wsa");
  auto setup = config(budget_bytes);
  const auto largest = limits_of(weights(), requests, setup).largest_cap();
  const auto blind = served(requests, by_value, setup);
  EXPECT_EQ(blind.first.cap, largest);
  EXPECT_EQ(blind.first.blocks, limits_of(weights(), requests, setup).blocks_beside(largest));
  setup.profile = requests;
  const auto informed = served(requests, by_value, setup);
  EXPECT_EQ(informed.first, blind.last);
  EXPECT_LT(informed.first.cap, largest);
  EXPECT_EQ(configured_cap(weights(), requests, setup), informed.first.cap);
  EXPECT_EQ(to_json(weights(), setup, std::span(&informed, 1))["results"][0]["first_cap"],
            informed.first.cap);
  // A given split is the start, whatever the profile says.
  const split_choice given{.rule = split_rule::marginal_value, .cap = 5};
  EXPECT_EQ(served(requests, given, setup).first.cap, 5U);
}

// Conversations return to blocks that are unused between two turns, so the peak does not count them.
TEST(trace_serving, dual_resize_sees_reuse_if_asked_to) {
  const auto requests = conversations(8, 60);
  auto setup = config(budget_bytes);
  const auto choice = split_choice::parse("dual-resize");
  const auto plain = served(requests, choice, setup);
  setup.count_reuse = true;
  const auto counting = served(requests, choice, setup);
  EXPECT_LT(counting.last.cap, plain.last.cap);
  EXPECT_GT(counting.served.stats.reused_tokens, plain.served.stats.reused_tokens);
  EXPECT_LT(counting.seconds, plain.seconds);
  EXPECT_TRUE(same_outputs(std::vector{plain, counting}));
  // If no request returns, both rules give the same result.
  const auto singles = conversations(1, 30);
  const auto without = served(singles, choice);
  EXPECT_EQ(served(singles, choice, setup).seconds, without.seconds);
}

// Two users in turn: the first asks for arithmetic, the second writes code. Each gets the support of their own table,
// and KV gets the remaining memory.
TEST(trace_serving, right_sizing_follows_the_current_user) {
  const auto of_user = [](std::uint32_t user, const std::string& words) {
    auto requests = conversations(1, 12);
    for (auto& one : requests) {
      for (std::size_t i = 0; i < one.prompt.size(); ++i)
        one.prompt[i] = static_cast<std::uint8_t>(words[i % words.size()]);
      one.arrival += user * 100000;
      one.user = user;
    }
    return requests;
  };
  auto requests = of_user(0, "aaaaaaaa");
  auto setup = config(24 * slot_bytes + 40 * block_bytes);
  setup.coverage = 0.8;
  const auto choice = split_choice::parse("right-size");
  const auto alone = served(requests, choice, setup);
  EXPECT_GT(alone.split.moves, 0U);
  EXPECT_LT(alone.last.cap, alone.first.cap);
  EXPECT_EQ(alone.last.blocks, limits_of(weights(), requests, setup).blocks_beside(alone.last.cap));
  for (auto& one : of_user(1, "def f(x): return x[0] + {'k': \"v\"}; 3.14 # Straße & Q: 12?\n"))
    requests.push_back(std::move(one));
  const auto both = served(requests, choice, setup);
  EXPECT_GT(both.last.cap, alone.last.cap);  // the second user's table alone, not the sum
  EXPECT_TRUE(same_outputs(std::vector{both, served(requests, "8", setup)}));
  EXPECT_LE(both.peak_bytes, setup.budget_bytes);
}

// Another process takes the memory that a controller wants: the move is refused, and the engine continues.
TEST(trace_serving, a_refused_move_changes_no_output) {
  const auto requests = conversations(1, 30);
  const split_choice choice{.rule = split_rule::marginal_value, .cap = 5};
  const auto plain = served(requests, choice);
  hotset::memory_budget budget(budget_bytes);
  const auto refused = serve_trace(
      weights(), requests, config(budget_bytes), choice, budget, [&](const drained_point& now) {
        // Half of one slot of one layer more than is left without the evictable blocks.
        const auto left = std::max(now.least_blocks, now.pool.in_use()) * block_bytes;
        budget.set_limit(now.step % 3 == 0 ? budget_bytes : 5 * slot_bytes + left + 23040 / 2);
      });
  EXPECT_GT(refused.split.refused, 0U);
  EXPECT_EQ(refused.served.requests.size(), plain.served.requests.size());
  EXPECT_TRUE(same_outputs(std::vector{plain, refused}));
  EXPECT_LE(refused.peak_bytes, budget_bytes);
}

TEST(trace_serving, floors_are_a_token_and_the_longest_request) {
  const auto requests = conversations(4, 20);
  std::size_t longest = 0;
  for (const auto& one : requests) longest = std::max(longest, one.longest());
  const auto limits = limits_of(weights(), requests, config(budget_bytes));
  EXPECT_EQ(limits.min_cap, 4U);
  EXPECT_EQ(limits.max_cap, 32U);
  EXPECT_EQ(limits.slot_bytes, slot_bytes);
  EXPECT_EQ(limits.block_bytes, block_bytes);
  EXPECT_EQ(limits.min_blocks, (longest + 7) / 8);
  EXPECT_THAT(
      refusal<infeasible_error>([&] { (void)limits_of(weights(), requests, config(1000)); }),
      HasSubstr(std::to_string(limits.smallest_budget()) + " bytes or more"));
  const auto run = served(requests, "4", config(limits.smallest_budget()));
  for (const auto& one : run.served.requests) EXPECT_EQ(one.refusal, "");
}

// A request too long for the model is reported and sets no floor.
TEST(trace_serving, a_request_that_no_model_could_serve_is_refused_alone) {
  auto requests = conversations(1, 4);
  requests[1].prompt.resize(5000, 'x');
  const auto run = served(requests, "8");
  EXPECT_THAT(run.served.requests[1].refusal, HasSubstr("accepted: 1..2048"));
  EXPECT_EQ(run.served.requests[0].refusal, "");
  EXPECT_EQ(run.served.requests[2].refusal, "");
}

TEST(trace_serving, reads_and_refuses_splits) {
  EXPECT_EQ(split_choice::parse("12").cap, 12U);
  EXPECT_EQ(split_choice::parse("12").name(), "fixed 12");
  EXPECT_EQ(split_choice::parse("mv-wsa").name(), "mv-wsa");
  EXPECT_EQ(split_choice::parse("dual-resize").name(), "dual-resize");
  for (const auto* bad : {"", "0", "-1", "x", "12x", "mv"})
    EXPECT_THROW((void)split_choice::parse(bad), usage_error) << bad;
  const auto requests = conversations(1, 2);
  EXPECT_THROW((void)served(requests, "3"), usage_error);
  EXPECT_THROW((void)served(requests, "33"), usage_error);
  auto bad = config(budget_bytes);
  bad.block_tokens = 0;
  EXPECT_THROW((void)limits_of(weights(), requests, bad), hotset::invalid_config);
  bad = config(budget_bytes);
  bad.burst = 0;
  EXPECT_THROW((void)limits_of(weights(), requests, bad), hotset::invalid_config);
}

TEST(trace_serving, reports_the_cost_of_each_run) {
  const auto requests = conversations(4, 12);
  std::vector<trace_serving_result> runs;
  for (const auto* split : {"6", "14", "mv-wsa"}) runs.push_back(served(requests, split));
  const auto* best = best_fixed(runs);
  ASSERT_NE(best, nullptr);
  EXPECT_EQ(best->seconds, std::min(runs[0].seconds, runs[1].seconds));
  const auto json = to_json(weights(), config(budget_bytes), runs);
  EXPECT_EQ(json["schema"], "hotset.serve/1");
  EXPECT_EQ(json["bytes_per_expert_slot"], slot_bytes);
  EXPECT_EQ(json["kv_bytes_per_block"], block_bytes);
  EXPECT_EQ(json["outputs_identical"], true);
  ASSERT_EQ(json["results"].size(), 3U);
  EXPECT_EQ(json["results"][1]["split"], "fixed 14");
  EXPECT_NEAR(json["results"][2]["over_best_fixed"].get<double>(),
              runs[2].seconds / best->seconds - 1, 1e-12);
  EXPECT_THAT(to_table(weights(), config(budget_bytes), runs), HasSubstr("mv-wsa"));
  EXPECT_EQ(best_fixed(std::span(runs).last(1)), nullptr);
  EXPECT_TRUE(to_json(weights(), config(budget_bytes),
                      std::span(runs).last(1))["results"][0]["over_best_fixed"]
                  .is_null());
  auto other = runs;
  other[1].served.requests[0].output.front() ^= 1;
  EXPECT_FALSE(same_outputs(other));
}

TEST(calibration, measures_prices_that_can_be_used) {
  const auto prices = calibrate(weights());
  EXPECT_FALSE(prices.validate());
  EXPECT_GT(prices.seconds_per_byte, 0);
  EXPECT_GT(prices.recompute_seconds_per_token, 0);
}

}  // namespace
}  // namespace trace_serving_test
