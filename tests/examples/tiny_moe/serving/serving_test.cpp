// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/serving/serving.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "paging_samples.hpp"
#include "random_source.hpp"

namespace serving_test {
namespace {

using namespace paging_samples;
using hotset::status;
using hotset::support::random_source;
using testing::ElementsAre;

serving_request request(std::string_view prompt, std::size_t tokens, std::uint64_t arrival = 0) {
  return {.arrival = arrival, .prompt = bytes_of(prompt), .tokens = tokens};
}

void expect_complete(const serving_report& report, std::span<const serving_request> requests) {
  ASSERT_EQ(report.requests.size(), requests.size());
  for (std::size_t r = 0; r < requests.size(); ++r) {
    EXPECT_EQ(report.requests[r].refusal, "") << "request " << r;
    EXPECT_EQ(report.requests[r].output, alone(requests[r])) << "request " << r;
  }
}

std::size_t most_blocks(const kv_pool& pool, std::span<const serving_request> requests) {
  std::size_t most = 0;
  for (const auto& one : requests) most = std::max(most, pool.blocks_for(one.longest()));
  return most;
}

// A pool and an engine with resident experts.
struct server_parts {
  explicit server_parts(const kv_pool_config& blocks, const engine_config& limits = {})
      : pool(weights().config(), blocks), decoder(weights(), experts, pool, limits) {}
  resident_experts experts{weights()};
  kv_pool pool;
  batch_engine decoder;
};

/// Serves the requests; each must get the answer that it gets alone.
serving_report served(server_parts& parts, std::span<const serving_request> requests,
                      const serving_config& config = {}, const between_steps& between = {}) {
  auto report = serve(parts.decoder, requests, config, between);
  expect_complete(report, requests);
  return report;
}

TEST(serving, one_request_is_a_prompt_in_chunks_and_a_step_for_each_token) {
  server_parts parts({.block_tokens = 8, .blocks = 10});
  const std::vector requests{request(text.substr(0, 50), 12, 3)};
  const auto report = served(parts, requests, {.max_sessions = 1, .max_tokens = 20});
  EXPECT_EQ(report.stats.steps, 3U + 11);
  EXPECT_EQ(report.stats.prefilled_tokens, 50U);
  EXPECT_EQ(report.stats.decoded_tokens, 11U);
  EXPECT_EQ(report.stats.reused_tokens, 0U);
  EXPECT_EQ(report.stats.recomputed_tokens, 0U);
  EXPECT_EQ(report.stats.preemptions, 0U);
  EXPECT_EQ(report.stats.peak_blocks, 8U);  // 61 tokens
  EXPECT_EQ(report.requests[0].first_token, 3U);
  EXPECT_EQ(report.requests[0].steps, 14U);
  EXPECT_EQ(parts.pool.in_use(), 0U);
}

TEST(serving, running_sessions_share_a_decode_step) {
  server_parts parts({.block_tokens = 8, .blocks = 60});
  const std::vector requests{request("one house", 10), request("two houses", 10),
                             request("three", 10)};
  const auto report = served(parts, requests);
  EXPECT_EQ(report.stats.steps, 1U + 9);  // one pass for all prompts, nine of three tokens
  EXPECT_EQ(report.stats.decoded_tokens, 27U);
}

TEST(serving, passes_of_prompts_and_of_tokens_take_turns) {
  server_parts parts({.block_tokens = 8, .blocks = 60});
  const std::vector requests{request("short", 8), request(text, 2, 1)};
  const auto report = served(parts, requests, {.max_sessions = 2, .max_tokens = 40});
  // First the short prompt; then, three times, one token of it and a chunk of the other; then both decode.
  EXPECT_EQ(report.requests[1].first_token, 6U);
  EXPECT_EQ(report.requests[0].steps, 1U + 3 + 7);
}

TEST(serving, max_sessions_is_kept_and_order_is_that_of_arrival) {
  server_parts parts({.block_tokens = 8, .blocks = 60});
  std::vector<serving_request> requests;
  for (std::uint64_t i = 0; i < 5; ++i) requests.push_back(request("a prompt", 6, i == 0 ? 40 : i));
  std::size_t most = 0;
  std::vector<std::uint64_t> steps;
  const auto report = serve(parts.decoder, requests, {.max_sessions = 2, .max_tokens = 16},
                            [&](const drained_point& point) {
                              EXPECT_TRUE(point.pool.drained());
                              EXPECT_EQ(&point.pool, &parts.pool);
                              most = std::max(most, point.running);
                              steps.push_back(point.step);
                            });
  expect_complete(report, requests);
  EXPECT_EQ(most, 2U);
  EXPECT_TRUE(std::is_sorted(steps.begin(), steps.end()));
  EXPECT_EQ(steps.back(), 45U);  // the last request came at step 40, when nothing ran
  EXPECT_EQ(report.requests[0].first_token, 1U);
  EXPECT_LT(report.requests[1].steps, report.requests[4].steps);
}

TEST(serving, a_beginning_that_was_served_before_is_reused) {
  server_parts parts({.block_tokens = 8, .blocks = 60});
  const std::string system(text.substr(0, 48));
  const std::vector requests{request(system + "first", 4), request(system + "second", 4, 30),
                             request(system, 4, 60)};
  const auto report = served(parts, requests);
  EXPECT_EQ(report.stats.reused_tokens, 48U + 40);  // the last token of a prompt is always computed
  EXPECT_EQ(report.stats.prefilled_tokens, 53U + 6 + 8);
  EXPECT_EQ(report.stats.recomputed_tokens, 0U);
  EXPECT_EQ(parts.pool.stats().hits, 11U);
}

TEST(serving, the_last_admitted_session_is_preempted_and_recomputed) {
  server_parts parts({.block_tokens = 4, .blocks = 10});
  const std::vector requests{request("The first one", 20), request("And a second", 20)};
  const auto report = served(parts, requests);
  EXPECT_EQ(report.requests[0].preemptions, 0U);
  EXPECT_EQ(report.requests[1].preemptions, 1U);
  EXPECT_EQ(report.stats.preemptions, 1U);
  EXPECT_LT(report.requests[0].steps, report.requests[1].steps);
  EXPECT_EQ(report.stats.peak_blocks, 10U);
  // Everything except reused blocks is computed exactly once more.
  EXPECT_GT(report.stats.recomputed_tokens, 0U);
  const std::size_t once = requests[0].longest() + requests[1].longest();
  EXPECT_EQ(report.stats.prefilled_tokens + report.stats.decoded_tokens,
            once + report.stats.recomputed_tokens);
}

// Counts how often each sequence had tokens in a pass, and how often it ended.
class sequence_counts final : public expert_provider {
 public:
  void on_step(const step_inputs& step) override {
    for (const auto sequence : step.sequences) ++tokens[sequence];
  }
  void run(const visit_inputs& visit, visit_compute& compute) override {
    resident_.run(visit, compute);
  }
  void on_sequence_end(std::uint32_t sequence) noexcept override { ++ends[sequence]; }

  std::map<std::uint32_t, std::size_t> tokens;
  std::map<std::uint32_t, std::size_t> ends;

 private:
  resident_experts resident_{weights()};
};

TEST(serving, an_ended_or_preempted_session_ends_its_sequence_once) {
  sequence_counts experts;
  kv_pool pool(weights().config(), {.block_tokens = 4, .blocks = 10});
  batch_engine decoder(weights(), experts, pool);
  const std::vector requests{request("The first one", 20), request("And a second", 20),
                             request("a third that ends early", 2)};
  const auto report = serve(decoder, requests);
  expect_complete(report, requests);
  ASSERT_GT(report.stats.preemptions, 0U);
  EXPECT_EQ(experts.tokens.size(), requests.size() + report.stats.preemptions);
  std::size_t tokens = 0;
  for (const auto& [sequence, count] : experts.tokens) {
    tokens += count;
    EXPECT_EQ(experts.ends[sequence], 1U) << "sequence " << sequence;
  }
  EXPECT_EQ(tokens, report.stats.prefilled_tokens + report.stats.decoded_tokens);
}

TEST(serving, a_preempted_session_precedes_waiting_requests) {
  server_parts parts({.block_tokens = 4, .blocks = 10});
  const std::vector requests{request("The first one", 20), request("And a second", 20),
                             request("who waits, with a long prompt", 4)};
  const auto report = served(parts, requests, {.max_sessions = 2, .max_tokens = 64});
  EXPECT_EQ(report.requests[1].preemptions, 1U);
  EXPECT_EQ(report.requests[2].preemptions, 0U);
  EXPECT_LT(report.requests[1].steps, report.requests[2].first_token);
}

TEST(serving, an_admitted_session_leaves_the_others_their_next_block) {
  server_parts parts({.block_tokens = 4, .blocks = 4});
  const std::vector requests{request("eight to", 4), request("seven t", 1, 1)};
  const auto report = served(parts, requests);
  EXPECT_EQ(report.stats.preemptions, 0U);
  EXPECT_GT(report.requests[1].first_token + 1, report.requests[0].steps);
}

TEST(serving, reusable_blocks_are_held_for_an_admitted_request) {
  server_parts parts({.block_tokens = 4, .blocks = 6});
  // The first two leave two blocks each in the cache. The third decodes before the fourth's turn and takes the oldest
  // unused block, which is not the end of the prefix that the fourth shares with the first.
  const std::vector requests{request("beginning", 1), request("otherwise", 1, 1),
                             request("eight to", 4, 2), request("beginning", 1, 3)};
  const auto report = served(parts, requests);
  EXPECT_EQ(parts.pool.stats().evictions, 2U);
  EXPECT_EQ(report.stats.reused_tokens, 8U);
  EXPECT_EQ(report.stats.preemptions, 0U);
}

TEST(serving, blocks_that_another_session_computes_are_reused) {
  server_parts parts({.block_tokens = 8, .blocks = 60});
  const std::vector requests{request(text.substr(0, 40), 2), request(text.substr(0, 40), 2)};
  const auto report = served(parts, requests, {.max_sessions = 2, .max_tokens = 20});
  EXPECT_EQ(report.stats.reused_tokens, 32U);  // both were admitted while nothing was cached
  EXPECT_EQ(report.stats.prefilled_tokens, 40U + 8);
}

TEST(serving, blocks_in_use_count_for_requests_that_share_them) {
  server_parts parts({.block_tokens = 8, .blocks = 7});
  const std::string system(text.substr(0, 40));
  const std::vector requests{request(system, 8), request(system + "x", 4, 1)};
  const auto report = served(parts, requests);
  EXPECT_EQ(report.requests[1].first_token,
            2U);  // beside the first, which holds six of seven blocks
  EXPECT_EQ(report.stats.peak_blocks, 7U);
  EXPECT_EQ(report.stats.preemptions, 0U);
}

TEST(serving, a_request_that_can_never_fit_is_refused_in_one_line) {
  server_parts parts({.block_tokens = 4, .blocks = 5}, {.max_positions = 64});
  const std::vector<std::pair<serving_request, const char*>> rows{
      {request("x", 21), "request 0: 6 KV blocks of 4 tokens; accepted: 1..5"},
      {request("", 3), "request 1: 0 bytes of prompt; accepted: 1 or more"},
      {request("abc", 0), "request 2: 0 tokens to generate; accepted: 1 or more"},
      {request("a", 20), ""},
      {request("y", 65), "request 4: 65 positions; accepted: 1..64"},
      {request("", 0), "request 5: 0 bytes of prompt; accepted: 1 or more"},
      {request("abc", std::numeric_limits<std::size_t>::max()),
       "request 6: 18446744073709551615 positions; accepted: 1..64"}};
  std::vector<serving_request> requests;
  for (const auto& row : rows) requests.push_back(row.first);
  const auto report = serve(parts.decoder, requests);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    EXPECT_EQ(report.requests[r].refusal, rows[r].second);
    EXPECT_EQ(report.requests[r].output, r == 3 ? alone(requests[r]) : std::vector<std::uint8_t>{});
  }
}

TEST(serving, a_pool_that_shrinks_too_far_ends_a_request_early) {
  server_parts parts({.block_tokens = 4, .blocks = 8});
  const std::vector requests{request("abcd", 20)};
  const auto report = serve(parts.decoder, requests, {}, [&](const drained_point& point) {
    EXPECT_EQ(point.least_blocks, point.running + point.waiting > 0 ? 6U : 0U);
    const auto units = point.step == 4 ? 3 : point.pool.capacity();
    EXPECT_EQ(point.pool.shrink(units), status::ok);
  });
  EXPECT_EQ(report.requests[0].refusal, "request 0: 6 KV blocks of 4 tokens; accepted: 1..3");
  const auto& output = report.requests[0].output;
  ASSERT_EQ(output.size(), 9U);
  EXPECT_TRUE(std::equal(output.begin(), output.end(), alone(requests[0]).begin()));
  EXPECT_EQ(parts.pool.in_use(), 0U);
}

TEST(serving, a_controller_may_grow_the_pool_for_a_request_that_waits) {
  server_parts parts({.block_tokens = 4, .blocks = 1});
  const std::vector requests{request("abcd", 20, 5)};
  const auto report = serve(parts.decoder, requests, {}, [](const drained_point& point) {
    if (point.least_blocks > point.pool.capacity()) {
      EXPECT_EQ(point.pool.grow(point.least_blocks), status::ok);
    }
  });
  expect_complete(report, requests);
  EXPECT_EQ(parts.pool.capacity(), 6U);
}

TEST(serving, limits_are_checked) {
  server_parts parts({.block_tokens = 4, .blocks = 8}, {.max_positions = 64, .max_tokens = 16});
  const std::vector<std::pair<serving_config, const char*>> rows{
      {{.max_sessions = 0, .max_tokens = 16}, "serving max_sessions = 0, accepted: 1..16"},
      {{.max_sessions = 17, .max_tokens = 16}, "serving max_sessions = 17, accepted: 1..16"},
      {{.max_sessions = 1, .max_tokens = 0}, "serving max_tokens = 0, accepted: 1..16"},
      {{.max_sessions = 1, .max_tokens = 17}, "serving max_tokens = 17, accepted: 1..16"}};
  for (const auto& row : rows)
    EXPECT_THAT([&] { (void)serve(parts.decoder, {}, row.first); },
                testing::ThrowsMessage<hotset::invalid_config>(row.second));
  EXPECT_NO_THROW((void)serve(parts.decoder, {}, {.max_sessions = 16, .max_tokens = 16}));
}

serving_request request_of(adapter_id adapter, std::string_view prompt, std::size_t tokens) {
  auto one = request(prompt, tokens);
  one.adapter = adapter;
  return one;
}

/// Requests that may be admitted, and the events: "+2" admitted, "?2" rejected, "-2" ended.
struct admissions {
  std::function<bool(const admissions&, adapter_id)> may_begin = [](const auto&, adapter_id) {
    return true;
  };
  std::map<adapter_id, int> pins;
  std::vector<std::string> told;

  serving_config over(serving_config config) {
    config.on_admit = [this](adapter_id adapter) -> hotset::validation {
      const bool may = may_begin(*this, adapter);
      told.push_back((may ? "+" : "?") + std::to_string(adapter));
      if (!may) return hotset::error{"not to be had"};
      ++pins[adapter];
      return std::nullopt;
    };
    config.on_end = [this](adapter_id adapter) {
      --pins[adapter];
      told.push_back("-" + std::to_string(adapter));
    };
    return config;
  }
  [[nodiscard]] int pinned() const {
    int all = 0;
    for (const auto& [adapter, count] : pins) all += count;
    return all;
  }
};

TEST(serving, a_rejected_request_waits_until_another_has_ended) {
  server_parts parts({.block_tokens = 8, .blocks = 60});
  admissions seen;
  seen.may_begin = [](const admissions& now, adapter_id) { return now.pinned() < 1; };
  const std::vector requests{request_of(1, "the first", 6), request_of(2, "the second", 3),
                             request_of(base_model, "a third", 2)};
  const auto report = served(parts, requests, seen.over({}));
  EXPECT_THAT(seen.told, ElementsAre("+1", "?2", "-1", "+2", "?0", "-2", "+0", "-0"))
      << "asked once, and then when somebody has ended; who is behind waits too";
  EXPECT_GT(report.requests[1].first_token, report.requests[0].steps);
  EXPECT_GT(report.requests[2].first_token, report.requests[1].steps);
}

TEST(serving, a_request_rejected_while_nothing_runs_is_refused) {
  server_parts parts({.block_tokens = 8, .blocks = 60});
  admissions seen;
  seen.may_begin = [](const auto&, adapter_id adapter) { return adapter != 7; };
  const std::vector requests{request_of(7, "nobody runs", 2), request_of(1, "somebody", 4),
                             request_of(7, "waits in vain", 2), request_of(2, "the last", 3)};
  const auto report = serve(parts.decoder, requests, seen.over({}));
  EXPECT_EQ(report.requests[0].refusal, "request 0: adapter 7: not to be had");
  EXPECT_EQ(report.requests[0].steps, 0U);
  EXPECT_EQ(report.requests[2].refusal, "request 2: adapter 7: not to be had");
  EXPECT_EQ(report.requests[2].steps, 4U);
  for (const std::size_t r : {1U, 3U}) EXPECT_EQ(report.requests[r].output, alone(requests[r]));
  EXPECT_THAT(seen.told, ElementsAre("?7", "+1", "?7", "-1", "?7", "+2", "-2"));
}

TEST(serving, a_preempted_session_ends_and_is_admitted_again) {
  server_parts parts({.block_tokens = 4, .blocks = 10});
  admissions seen;
  const std::vector requests{request_of(1, "The first one", 20), request_of(2, "And a second", 20)};
  const auto report = served(parts, requests, seen.over({}));
  ASSERT_EQ(report.requests[1].preemptions, 1U);
  std::vector<std::string> of_second;
  for (const auto& one : seen.told)
    if (one.back() == '2') of_second.push_back(one);
  EXPECT_THAT(of_second, ElementsAre("+2", "-2", "+2", "-2"));
  EXPECT_EQ(seen.pinned(), 0);
}

TEST(serving, an_error_ends_all_admitted_requests_and_sequences) {
  server_parts parts({.block_tokens = 4, .blocks = 20});
  admissions seen;
  const std::vector requests{request_of(1, "abcdefgh", 9), request_of(2, "ijk", 9)};
  const auto fail_at_four = [](const drained_point& point) {
    if (point.step == 4) throw std::runtime_error("enough");
  };
  EXPECT_THROW((void)serve(parts.decoder, requests, seen.over({}), fail_at_four),
               std::runtime_error);
  EXPECT_EQ(seen.told.size(), 4U);
  EXPECT_EQ(seen.pinned(), 0);
  EXPECT_EQ(parts.pool.in_use(), 0U);
  EXPECT_TRUE(parts.pool.drained());

  auto throws = seen.over({});
  throws.on_admit = [inner = throws.on_admit](adapter_id adapter) {
    if (adapter == 2) throw std::runtime_error("enough");
    return inner(adapter);
  };
  EXPECT_THROW((void)serve(parts.decoder, requests, throws), std::runtime_error);
  EXPECT_EQ(seen.pinned(), 0);
  EXPECT_EQ(parts.pool.in_use(), 0U);
  (void)served(parts, requests);
}

TEST(serving, a_clock_times_passes_and_skips_idle_time) {
  server_parts parts({.block_tokens = 8, .blocks = 60});
  std::vector requests{request(text.substr(0, 40), 3, 100), request("a second", 2, 105),
                       request("late", 1, 1000)};
  std::uint64_t time = 7000;  // serving may start at any time
  serving_config config{.max_sessions = 2, .max_tokens = 20};
  config.clock = [&time] { return time; };
  config.on_rows = [&time](std::span<const std::uint32_t>) { time += 10; };
  std::vector<std::uint64_t> times;
  const auto report = serve(parts.decoder, requests, config,
                            [&](const drained_point& point) { times.push_back(point.step); });
  expect_complete(report, requests);
  // Two chunks of the first prompt, one token of it, the second prompt, one token of both; then the third prompt.
  EXPECT_THAT(times, ElementsAre(0U, 100U, 110U, 120U, 130U, 140U, 150U, 1000U));
  EXPECT_EQ(report.stats.steps, 6U);
  EXPECT_EQ(report.requests[0].first_token, 20U);
  EXPECT_EQ(report.requests[0].steps, 50U);
  EXPECT_EQ(report.requests[1].first_token, 35U);
  EXPECT_EQ(report.requests[1].steps, 45U);
  EXPECT_EQ(report.requests[2].first_token, 10U);
  EXPECT_EQ(report.requests[2].steps, 10U);
}

std::vector<serving_request> random_requests(random_source& random) {
  static const std::vector<std::string> beginnings{std::string(text.substr(0, 24)),
                                                   std::string(text.substr(0, 40)),
                                                   "{\"call\": \"query_db\"", "a"};
  static const std::vector<std::string> ends{"", " and then", "17 + 25", "x", " return a + b;"};
  std::vector<serving_request> requests(4 + random.below(7));
  for (auto& one : requests) {
    // In separate statements: the evaluation order of arguments is unspecified.
    auto prompt = beginnings[random.below(4)];
    prompt += ends[random.below(5)];
    const auto tokens = 1 + random.below(24);
    one = request(prompt, tokens, random.one_in(2) ? 0 : random.below(40));
  }
  return requests;
}

serving_config random_config(random_source& random) {
  return {.max_sessions = 1 + random.below(6), .max_tokens = 1 + random.below(40)};
}

// Resizes the pool between two steps in any way that leaves room for every request.
void resize_randomly(random_source& random, const drained_point& point, std::uint64_t least) {
  if (!random.one_in(3)) return;
  const auto units = std::max(least, point.pool.in_use()) + random.below(6);
  EXPECT_EQ(units < point.pool.capacity() ? point.pool.shrink(units) : point.pool.grow(units),
            status::ok);
}

TEST(serving, every_schedule_in_every_pool_gives_the_output_of_each_request_alone) {
  serving_stats all;
  std::uint64_t evictions = 0;
  std::uint64_t moves = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    random_source random(seed);
    const auto requests = random_requests(random);
    const auto config = random_config(random);
    server_parts parts({.block_tokens = 1 + random.below(12), .reuse = !random.one_in(6)},
                       {.max_positions = 128, .max_tokens = 64});
    const auto least = most_blocks(parts.pool, requests);
    // From the smallest pool that works to one with room for a few requests.
    ASSERT_EQ(parts.pool.grow(least + (random.one_in(2) ? 0 : random.below(least))), status::ok);
    const bool resizes = random.one_in(2);
    const auto report = serve(parts.decoder, requests, config, [&](const drained_point& point) {
      ASSERT_LE(point.running, config.max_sessions);
      ASSERT_LE(point.least_blocks, least);
      if (resizes) resize_randomly(random, point, least);
    });
    expect_complete(report, requests);
    EXPECT_EQ(parts.pool.in_use(), 0U);
    const auto& stats = report.stats;
    std::uint64_t once = 0;
    std::uint64_t preemptions = 0;
    for (std::size_t r = 0; r < requests.size(); ++r) {
      once += requests[r].longest();
      preemptions += report.requests[r].preemptions;
      EXPECT_LE(report.requests[r].first_token, report.requests[r].steps);
    }
    EXPECT_GE(stats.prefilled_tokens + stats.decoded_tokens + stats.reused_tokens,
              once + stats.recomputed_tokens);
    EXPECT_LE(stats.prefilled_tokens + stats.decoded_tokens, once + stats.recomputed_tokens);
    EXPECT_EQ(stats.preemptions, preemptions);
    ASSERT_FALSE(testing::Test::HasFailure());
    all.preemptions += stats.preemptions;
    all.reused_tokens += stats.reused_tokens;
    all.recomputed_tokens += stats.recomputed_tokens;
    evictions += parts.pool.stats().evictions;
    moves += parts.pool.stats().moves;
  }
  EXPECT_GT(all.preemptions, 30U);  // otherwise the comparison proves nothing
  EXPECT_GT(all.reused_tokens, 500U);
  EXPECT_GT(all.recomputed_tokens, 200U);
  EXPECT_GT(evictions, 200U);
  EXPECT_GT(moves, 100U);
}

TEST(serving, a_run_is_the_same_every_time) {
  for (std::uint64_t seed = 100; seed < 104; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::vector<std::vector<std::uint64_t>> runs;
    for (int run = 0; run < 2; ++run) {
      random_source random(seed);
      const auto requests = random_requests(random);
      const auto config = random_config(random);
      std::vector<std::uint64_t> seen;
      server_parts parts(
          {.block_tokens = 4, .blocks = 20, .on_reference = [&](const block_reference& one) {
             seen.push_back(2 * one.content + (one.is_hit ? 1U : 0U));
           }});
      const auto report = serve(parts.decoder, requests, config);
      for (const auto& one : report.requests) {
        seen.insert(seen.end(), {one.first_token, one.steps, one.preemptions});
      }
      seen.push_back(report.stats.steps);
      runs.push_back(std::move(seen));
    }
    EXPECT_EQ(runs[0], runs[1]);
  }
}

}  // namespace
}  // namespace serving_test
