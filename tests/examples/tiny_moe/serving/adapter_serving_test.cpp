// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/serving/adapter_serving.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "adapter_samples.hpp"
#include "hotset/core/error.hpp"

namespace adapter_serving_test {
namespace {

using namespace adapter_samples;
using testing::AllOf;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<named_text>& texts() {
  static const std::vector<named_text> made{{"math-1", std::string(50, 'm')},
                                            {"math-2", std::string(9, 'n')},
                                            {"code-1", std::string(20, 'c')}};
  return made;
}
std::vector<std::string> names_of(std::size_t adapters) {
  std::vector<std::string> out;
  for (std::size_t a = 0; a < adapters; ++a) out.push_back("x" + std::to_string(a));
  return out;
}

TEST(adapter_serving, shares_follow_the_power_law_by_hand) {
  const auto all_alike = adapter_shares(2, 1);
  ASSERT_EQ(all_alike.size(), 2U);
  EXPECT_DOUBLE_EQ(all_alike[0], 0.5);
  EXPECT_DOUBLE_EQ(all_alike[1], 0.5);
  const auto roots = adapter_shares(4, 0.5);
  EXPECT_DOUBLE_EQ(roots[0], 0.5);
  EXPECT_NEAR(roots[1], 0.70710678 - 0.5, 1e-8);
  EXPECT_NEAR(roots[2], 0.86602540 - 0.70710678, 1e-8);
  EXPECT_NEAR(roots[3], 1 - 0.86602540, 1e-8);
}

TEST(adapter_serving, seeded_arrivals_follow_the_shares) {
  for (const double alpha : {1.0, 0.3, 0.1}) {
    SCOPED_TRACE(alpha);
    constexpr std::size_t n = 20'000;
    const auto requests = adapter_requests({.adapters = 5,
                                            .alpha = alpha,
                                            .rate = 40,
                                            .requests = n,
                                            .prompt_tokens = 1,
                                            .tokens = 3,
                                            .seed = 4},
                                           names_of(5), texts());
    ASSERT_EQ(requests.size(), n);
    EXPECT_TRUE(std::ranges::is_sorted(requests, {}, &serving_request::arrival));
    EXPECT_NEAR(static_cast<double>(requests.back().arrival) * 1e-9, n / 40.0, 0.03 * n / 40.0);
    const auto shares = adapter_shares(5, alpha);
    std::vector<double> counts(5);
    for (const auto& one : requests) counts.at(one.adapter - 1) += 1;
    for (std::size_t a = 0; a < 5; ++a)
      EXPECT_NEAR(counts[a], n * shares[a], 5 * std::sqrt(n * shares[a])) << "adapter " << a;
  }
}

// In a Poisson process the gaps are exponential: P(gap > x) = e^-x.
TEST(adapter_serving, each_adapters_arrivals_are_a_poisson_process) {
  const auto requests = adapter_requests(
      {.adapters = 2, .alpha = 1, .rate = 10, .requests = 20'000, .prompt_tokens = 1}, names_of(2),
      texts());
  std::vector<double> gaps;
  std::uint64_t last = 0;
  for (const auto& one : requests) {
    if (one.adapter != 2) continue;
    gaps.push_back(static_cast<double>(one.arrival - last) * 1e-9);
    last = one.arrival;
  }
  const auto count = static_cast<double>(gaps.size());
  for (const double means : {0.1, 0.5, 1.0, 2.0, 4.0}) {
    const auto longer = std::ranges::count_if(gaps, [&](double gap) { return gap > means / 5; });
    const double chance = std::exp(-means);
    EXPECT_NEAR(static_cast<double>(longer), count * chance,
                5 * std::sqrt(count * chance * (1 - chance)))
        << means;
  }
}

TEST(adapter_serving, an_adapters_requests_do_not_depend_on_the_others) {
  const adapter_serving_config one{
      .adapters = 1, .alpha = 1, .rate = 10, .requests = 30, .prompt_tokens = 7};
  auto two = one;
  two.adapters = 2;
  two.rate = 20;
  two.requests = 90;
  const auto alone_there = adapter_requests(one, names_of(1), texts());
  auto beside = adapter_requests(two, names_of(2), texts());
  std::erase_if(beside, [](const auto& r) { return r.adapter != 1; });
  ASSERT_GE(beside.size(), alone_there.size());
  for (std::size_t r = 0; r < alone_there.size(); ++r) {
    EXPECT_EQ(beside[r].arrival, alone_there[r].arrival);
    EXPECT_EQ(beside[r].prompt, alone_there[r].prompt);
  }
  auto other_seed = one;
  other_seed.seed = 2;
  EXPECT_NE(adapter_requests(other_seed, names_of(1), texts())[0].arrival, alone_there[0].arrival);
}

TEST(adapter_serving, prompts_are_of_the_texts_that_are_named_after_the_adapter) {
  const std::vector<std::string> names{"math", "math#2", "law"};
  const auto requests = adapter_requests(
      {.adapters = 3, .rate = 1, .requests = 200, .prompt_tokens = 30, .tokens = 5}, names,
      texts());
  std::string of_math;
  std::string of_law;
  for (const auto& one : requests) {
    EXPECT_EQ(one.prompt.size(), 30U);
    EXPECT_EQ(one.tokens, 5U);
    (one.adapter == 3 ? of_law : of_math) += static_cast<char>(one.prompt.front());
  }
  EXPECT_THAT(of_math, AllOf(HasSubstr("m"), HasSubstr("n"), testing::Not(HasSubstr("c"))));
  EXPECT_THAT(of_law, AllOf(HasSubstr("m"), HasSubstr("c"))) << "none is named after it";
}

TEST(adapter_serving, times_of_complete_requests_by_hand) {
  serving_report served;
  const auto add = [&](std::uint64_t first, std::uint64_t last, std::size_t tokens) {
    served.requests.push_back({.output = std::vector<std::uint8_t>(tokens, 'x'),
                               .refusal = {},
                               .first_token = first,
                               .steps = last});
  };
  add(3'000'000, 9'000'000, 4);  // 2 ms a token
  add(1'000'000, 5'000'000, 2);  // 4 ms
  add(2'000'000, 2'000'000, 1);  // one token: none after it
  served.requests.push_back({.output = {}, .refusal = "no", .first_token = 90, .steps = 99});
  const auto times = times_of(served);
  EXPECT_DOUBLE_EQ(times.first_mean, 2);
  EXPECT_DOUBLE_EQ(times.first_p50, 2);
  EXPECT_DOUBLE_EQ(times.first_p99, 3);
  EXPECT_DOUBLE_EQ(times.token, 3);
  EXPECT_TRUE(std::isnan(times_of({}).first_mean));
  EXPECT_TRUE(std::isnan(times_of({}).first_p50));
  EXPECT_TRUE(std::isnan(times_of({}).token));
}

TEST(adapter_serving, serves_more_adapters_than_there_are_and_than_there_are_places_for) {
  const adapter_serving_config config{.adapters = 5,
                                      .alpha = 0.3,
                                      .rate = 200,
                                      .requests = 24,
                                      .prompt_tokens = 20,
                                      .tokens = 6,
                                      .places = 2,
                                      .repeats = 2};
  const auto run = serve_adapters(weights(), three_adapters(), texts(), config);
  EXPECT_GE(run.checked, 3U);
  EXPECT_EQ(run.different, 0U);
  EXPECT_TRUE(same_as_merged({&run, 1}));
  ASSERT_EQ(run.pairs.size(), 2U);
  for (const auto& pair : run.pairs) {
    EXPECT_EQ(pair.refusals, 0U);
    EXPECT_GE(pair.registry.loads, run.checked) << "none was there when the run began";
    EXPECT_GT(pair.registry.evictions, 0U);
    EXPECT_EQ(pair.experts.steps, pair.passes);
    EXPECT_EQ(pair.experts.visits, pair.passes * weights().config().layers);
    EXPECT_GE(pair.weight_byte_ratio(), 1);
    EXPECT_NEAR(pair.extra_experts(),
                (pair.weight_byte_ratio() - 1) * static_cast<double>(pair.experts.base_experts) /
                    static_cast<double>(pair.passes),
                1e-6);
  }
}

TEST(adapter_serving, reports_the_cost_of_each_run) {
  adapter_serving_config config{
      .adapters = 2, .rate = 100, .requests = 6, .prompt_tokens = 12, .tokens = 1, .repeats = 1};
  std::vector<adapter_serving_result> runs;
  runs.push_back(serve_adapters(weights(), three_adapters(), texts(), config));
  config.tokens = 3;
  config.alpha = 0.1;
  runs.push_back(serve_adapters(weights(), three_adapters(), texts(), config));
  const auto json = to_json(runs);
  EXPECT_EQ(json["schema"], "hotset.serve_adapters/1");
  EXPECT_EQ(json["requests"], 6);
  EXPECT_EQ(json["bytes_per_expert"], 23040);
  EXPECT_EQ(json["outputs_identical"], true);
  ASSERT_EQ(json["results"].size(), 2U);
  for (const auto& row : json["results"]) {
    const auto mean = row.at("ttft_ms").at("mean").get<double>();
    const auto base = row.at("base").at("ttft_ms").at("mean").get<double>();
    EXPECT_NEAR(row.at("ttft_over_base").get<double>(), mean / base - 1, 1e-9);
    EXPECT_THAT(row.at("ttft_over_base_of_pairs"), ElementsAre(row.at("ttft_over_base")));
  }
  EXPECT_TRUE(json["results"][0]["token_ms"].is_null()) << "of one token there is no time between";
  EXPECT_TRUE(json["results"][0]["token_over_base"].is_null());
  EXPECT_TRUE(json["results"][0]["token_over_base_of_pairs"][0].is_null());
  EXPECT_GT(json["results"][1]["token_ms"].get<double>(), 0);
  EXPECT_THAT(to_table(runs),
              AllOf(HasSubstr("TTFT ms"), HasSubstr("6 requests of 12 + 1 tokens")));
  runs[1].different = 1;
  EXPECT_FALSE(same_as_merged(runs));
  EXPECT_EQ(to_json(runs)["outputs_identical"], false);
  EXPECT_EQ(to_json(runs)["results"][1]["outputs_identical"], false);
}

/// A run of the adapters with this duration, and one of the base model.
adapter_serving_pair pair_of(double adapters, double base) {
  adapter_serving_pair out;
  const auto times = [](double unit) {
    return request_times{
        .first_mean = unit, .first_p50 = 2 * unit, .first_p99 = 3 * unit, .token = 4 * unit};
  };
  out.adapters = times(adapters);
  out.base = times(base);
  out.passes = static_cast<std::uint64_t>(adapters);
  out.pass_ns = 1000 * adapters;
  out.experts = {.reroute_ns = static_cast<std::uint64_t>(10 * adapters * adapters),
                 .virtual_experts = static_cast<std::uint64_t>(adapters * (adapters + 2)),
                 .base_experts = static_cast<std::uint64_t>(2 * adapters)};
  out.registry.loads = static_cast<std::uint64_t>(100 * adapters);
  out.registry.evictions = static_cast<std::uint64_t>(200 * adapters);
  out.registry.refusals = static_cast<std::uint64_t>(300 * adapters);
  return out;
}

// Each figure is the median of its own ratios: +100 %, -50 % and +20 %. The ratio of the medians would be 0.
TEST(adapter_serving, figures_are_medians_of_their_runs_by_hand) {
  adapter_serving_result run;
  run.config.repeats = 3;
  run.expert_bytes = 50;
  run.pairs = {pair_of(8, 4), pair_of(5, 10), pair_of(6, 5)};
  const auto row = to_json({&run, 1})["results"][0];
  const auto of = [&](const char* key) { return row.at(key).get<double>(); };
  EXPECT_EQ(row["ttft_ms"].dump(), R"({"mean":6.0,"p50":12.0,"p99":18.0})");
  EXPECT_EQ(row["base"]["ttft_ms"].dump(), R"({"mean":5.0,"p50":10.0,"p99":15.0})");
  EXPECT_DOUBLE_EQ(of("token_ms"), 24);
  EXPECT_DOUBLE_EQ(row["base"]["token_ms"].get<double>(), 20);
  EXPECT_NEAR(of("ttft_over_base"), 0.2, 1e-12);
  EXPECT_NEAR(of("token_over_base"), 0.2, 1e-12);
  for (const char* key : {"ttft_over_base_of_pairs", "token_over_base_of_pairs"})
    EXPECT_THAT(row.at(key).get<std::vector<double>>(),
                ElementsAre(DoubleNear(1, 1e-12), DoubleNear(-0.5, 1e-12), DoubleNear(0.2, 1e-12)))
        << "in the order in which they ran";
  EXPECT_EQ(row["passes"], 6);
  EXPECT_DOUBLE_EQ(of("pass_ns"), 6000);
  EXPECT_DOUBLE_EQ(of("reroute_ns"), 60);
  EXPECT_DOUBLE_EQ(of("reroute_share"), 0.01);
  EXPECT_DOUBLE_EQ(of("extra_weight_bytes"), 6 * 50);
  EXPECT_DOUBLE_EQ(of("weight_byte_ratio"), 4);
  EXPECT_EQ(row["loads"], 600);
  EXPECT_EQ(row["evictions"], 1200);
  EXPECT_EQ(row["refused_acquires"], 1800);
  EXPECT_THAT(
      to_table({&run, 1}, {.columns = {"ttft", "ttft-over-base", "ttft-of-pairs", "waits"}}),
      AllOf(HasSubstr("medians of 3 runs"), HasSubstr("+20.0"), HasSubstr("-50.0..+100.0"),
            HasSubstr("1800")));
}

TEST(adapter_serving, a_median_is_one_of_the_measured_figures) {
  adapter_serving_result run;
  run.pairs = {pair_of(8, 4), pair_of(5, 10), pair_of(6, 5), pair_of(9, 9)};
  auto row = to_json({&run, 1})["results"][0];
  EXPECT_EQ(row["passes"], 6) << "the lower of the middle two";
  EXPECT_DOUBLE_EQ(row["token_ms"].get<double>(), 24);
  const double nothing = std::nan("");
  for (const std::size_t p : {0U, 1U, 3U}) run.pairs[p].adapters.token = nothing;
  run.pairs[0].refusals = 7;
  row = to_json({&run, 1})["results"][0];
  EXPECT_DOUBLE_EQ(row["token_ms"].get<double>(), 24) << "the only one";
  EXPECT_NEAR(row["token_over_base"].get<double>(), 0.2, 1e-12);
  EXPECT_EQ(row["token_over_base_of_pairs"].dump().substr(0, 10), "[null,null");
  EXPECT_EQ(row["refusals"], 7) << "the most of a run: none is left unsaid";
  run.pairs[2].adapters.token = nothing;
  EXPECT_TRUE(to_json({&run, 1})["results"][0]["token_ms"].is_null());
  EXPECT_THAT(to_table({&run, 1}, {.columns = {"token", "token-of-pairs"}}), HasSubstr(" -"));
}

TEST(adapter_serving, a_request_that_cannot_be_served_is_one_line) {
  const std::vector<std::pair<adapter_serving_config, const char*>> rows{
      {{}, "valid"},
      {{.adapters = 0}, "adapters = 0, accepted: 1..256"},
      {{.adapters = 257}, "adapters = 257, accepted: 1..256"},
      {{.alpha = 0}, "alpha = 0, accepted: 0.001..1"},
      {{.alpha = 1.5}, "alpha = 1.5, accepted: 0.001..1"},
      {{.rate = 0}, "rate = 0, accepted: 0.001..1000000"},
      {{.rate = std::nan("")}, "rate = nan, accepted: 0.001..1000000"},
      {{.requests = 0}, "requests = 0, accepted: 1..1048576"},
      {{.repeats = 0}, "repeats = 0, accepted: 1..99"},
      {{.repeats = 100}, "repeats = 100, accepted: 1..99"},
      {{.prompt_tokens = 0}, "prompt tokens = 0, accepted: 1..2048"},
      {{.tokens = 0}, "tokens = 0, accepted: 1..1985"},
      {{.prompt_tokens = 2048, .tokens = 2}, "tokens = 2, accepted: 1..1"},
      {{.prompt_tokens = 2048, .tokens = 1}, "valid"}};
  for (const auto& [config, says] : rows) {
    const auto bad = config.validate(weights().config());
    EXPECT_EQ(bad ? bad->message : "valid", says);
  }
  EXPECT_THROW((void)serve_adapters(weights(), three_adapters(), texts(), {.tokens = 0}),
               hotset::invalid_config);
}

}  // namespace
}  // namespace adapter_serving_test
