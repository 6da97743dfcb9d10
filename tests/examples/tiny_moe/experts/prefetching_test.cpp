// SPDX-License-Identifier: Apache-2.0
// Exact combinations stay byte-identical with prefetch, whatever the backend does to the copies.
#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "case_names.hpp"
#include "hotset/eviction/least_stale.hpp"
#include "hotset/predict/co_activation.hpp"
#include "lab/replay/registry.hpp"
#include "paging_samples.hpp"
#include "tiny_moe/experts/paging_choice.hpp"
#include "tiny_moe/model/gate_hook.hpp"

namespace prefetching_test {
namespace {

using namespace hotset::literals;
using namespace paging_samples;
using testing::HasSubstr;

/// Copies of a slow, failing source on two threads: they end in another order than they were submitted.
class unruly_backend : public failing_source_holder, public hotset::host_backend<failing_source> {
 public:
  using base = hotset::host_backend<failing_source>;
  unruly_backend(const expert_copies& source, const hotset::host_slot_bank& bank,
                 const base::config& setup)
      : failing_source_holder(source),
        base(broken, bank, {.most_fills = setup.most_fills, .threads = 2}) {}
};

using stale_pager = hotset::pager<hotset::least_stale>;

paging_config prefetching(const char* prefetch, const char* budget) {
  paging_config config;
  config.layout = layout_of(weights(), cache_scope::shared, budget);
  config.gate.prefetch = hotset::lab::make_prefetch(prefetch);
  return config;
}

/// A prompt, then tokens one by one, against full residency.
void expect_same_bytes(expert_provider& experts, const std::string& what) {
  SCOPED_TRACE(what);
  static const auto wanted = resident_logits(text);
  engine decoder(weights(), experts);
  const auto bytes = bytes_of(text);
  for (std::size_t t = 0, count = 24; t < bytes.size(); t += std::exchange(count, 1))
    ASSERT_TRUE(same_bytes(std::span(wanted).subspan(t * 256, count * 256),
                           decoder.forward(std::span(bytes).subspan(t, count))))
        << t;
}

/// Name of a prefetch policy, of a budget, and whether the predictor is a table that learns during the run.
using late_case = std::tuple<const char*, const char*, bool>;
class tiny_moe_late_prefetching : public testing::TestWithParam<late_case> {};

TEST_P(tiny_moe_late_prefetching, changes_no_byte) {
  const auto& [prefetch, budget, learns] = GetParam();
  auto config = prefetching(prefetch, budget);
  if (learns) config.gate.predictor = hotset::any_predictor::holding<hotset::co_activation>();
  paged_experts<stale_pager, unruly_backend> experts(weights(), config);
  experts.backend().broken.slow_every = 7;
  if (learns) experts.backend().broken.fail_every = 13;
  expect_same_bytes(experts, std::string(prefetch) + ' ' + budget);
  EXPECT_GT(experts.stats().prefetch_hits, 0U);
  EXPECT_EQ(experts.backend().broken.failed > 0, learns);
  if (learns) return;
  EXPECT_GT(experts.stats().late_prefetches, 0U);
  EXPECT_EQ(experts.host_visits(), 0U);
}
INSTANTIATE_TEST_SUITE_P(by_scores, tiny_moe_late_prefetching,
                         testing::Combine(testing::Values("next_layer_top_k:overfetch=2",
                                                          "score_threshold", "previous_step"),
                                          testing::Values("12.5%", "50%"), testing::Values(false)),
                         hotset::support::by_place);
INSTANTIATE_TEST_SUITE_P(by_table, tiny_moe_late_prefetching,
                         testing::Combine(testing::Values("next_layer_top_k",
                                                          "next_layer_top_k:overfetch=2:depth=3",
                                                          "score_threshold"),
                                          testing::Values("12.5%", "50%"), testing::Values(true)),
                         hotset::support::by_place);

// Bounded: three attempts per visit; then the host's copy is computed, with the same bytes.
TEST(tiny_moe_prefetching, failed_copies_are_retried_or_left_to_the_host) {
  for (const std::uint64_t every : {2U, 5U, 17U}) {
    paged_experts<stale_pager, unruly_backend> experts(
        weights(), prefetching("next_layer_top_k:overfetch=2", "25%"));
    experts.backend().broken.fail_every = every;
    expect_same_bytes(experts, "every " + std::to_string(every));
    EXPECT_GT(experts.backend().broken.failed, 0U);
    EXPECT_GT(experts.stats().failed_fills, 0U);
    if (every == 2) {
      EXPECT_GT(experts.host_visits(), 0U);
    }
    const auto s = experts.stats();
    EXPECT_EQ(s.bytes_prefetched, s.bytes_prefetch_used + s.bytes_prefetch_wasted +
                                      s.bytes_prefetch_cancelled + s.bytes_prefetch_pending());
  }
}

TEST(tiny_moe_prefetching, all_failures_at_once_change_no_byte) {
  for (const char* budget : {"12.5%", "50%"}) {
    auto config = prefetching("next_layer_top_k:overfetch=2:depth=3", budget);
    config.guard = hotset::prefetch_guard::none;
    config.cache.most_under_way = 3;
    config.cache.queue.most_waiting = 5;
    paged_experts<stale_pager, unruly_backend> experts(weights(), config);
    experts.backend().broken.fail_every = 11;
    experts.backend().broken.slow_every = 5;
    expect_same_bytes(experts, budget);
    EXPECT_GT(experts.queue().displaced, 0U);
  }
}

TEST(tiny_moe_renormalise, the_kept_weights_sum_to_the_original_sum) {
  const std::vector<std::int32_t> ids{3, -1, 5, -1, 1, 2, 3, 4, -1, -1, -1, -1};
  std::vector<float> w{0.4F, 0.3F, 0.1F, 0.2F, 0.25F, 0.25F, 0.25F, 0.25F, 0.5F, 0.5F, 0.0F, 0.0F};
  renormalise(ids, w, 4);
  EXPECT_FLOAT_EQ(w[0], 0.8F);
  EXPECT_FLOAT_EQ(w[1], 0.0F);
  EXPECT_FLOAT_EQ(w[2], 0.2F);
  EXPECT_FLOAT_EQ(w[4], 0.25F);
  EXPECT_FLOAT_EQ(w[8], 0.5F) << "nothing is left to share among";
}

paging_choice lossy(const char* miss, const char* precision) {
  paging_choice choice;
  choice.policies.miss = miss;
  choice.precision = precision;
  return choice;
}
std::vector<float> logits_under(const paging_choice& choice) {
  const auto paging = make_paging(weights(), choice, nothing_counted());
  EXPECT_FALSE(paging.experts->is_exact());
  return logits_of(*paging.experts, text);
}

TEST(tiny_moe_lossy_misses, change_the_logits_and_report_it) {
  const auto exact = resident_logits(text);
  for (const auto* miss : {"fetch_lowest", "fetch_priority", "drop", "drop_cascade"}) {
    const auto found = logits_under(lossy(miss, "16:4"));
    ASSERT_EQ(found.size(), exact.size());
    EXPECT_FALSE(same_bytes(exact, found)) << miss;
    for (const auto logit : found) ASSERT_TRUE(std::isfinite(logit)) << miss;
  }
}

TEST(tiny_moe_lossy_misses, a_substitute_is_a_resident_of_earlier_tokens) {
  paging_choice choice;
  choice.policies.miss = "substitute:tolerance=0.3";
  choice.policies.eviction = "lru";
  choice.scope = "per-layer";
  choice.budget = "50%";
  const auto paging = make_paging(weights(), choice, nothing_counted());
  engine decoder(weights(), *paging.experts);
  std::vector<float> found;
  for (const auto byte : bytes_of(text)) {
    const auto row = decoder.forward({&byte, 1}, request_kind::decode);
    found.insert(found.end(), row.begin(), row.end());
  }
  EXPECT_FALSE(same_bytes(resident_logits(text), found));
  EXPECT_GT(paging.experts->stats().substituted_misses, 0U);
}

// With the lower of two precisions for everything, the result is that of a library with only that precision.
TEST(tiny_moe_lossy_misses, a_ladder_with_an_unused_upper_rung_equals_the_lower_precision) {
  const expert_library library(weights(), "16:4");
  resident_copies low(library, 1_precision);
  auto choice = lossy("fetch_lowest", "16:4@10:90");
  choice.budget = "100%";
  EXPECT_TRUE(same_bytes(logits_of(low, text), logits_under(choice)));
}

TEST(tiny_moe_bent_routing, prefers_residents_and_reports_that_it_is_not_exact) {
  paging_choice own, bent;
  own.policies.eviction = bent.policies.eviction = "lru";
  bent.policies.routing = "cache_aware:lambda=0.5";
  const auto plain = make_paging(weights(), own, nothing_counted());
  const auto moved = make_paging(weights(), bent, nothing_counted());
  EXPECT_TRUE(plain.experts->is_exact());
  EXPECT_FALSE(moved.experts->is_exact());
  engine a(weights(), *plain.experts), b(weights(), *moved.experts);
  for (const auto byte : bytes_of(text)) {
    (void)a.forward({&byte, 1}, request_kind::decode);
    (void)b.forward({&byte, 1}, request_kind::decode);
  }
  EXPECT_GT(moved.experts->stats().hits, plain.experts->stats().hits);
}

using refused_choice = std::pair<void (*)(paging_choice&), const char*>;
class tiny_moe_paging_choice : public testing::TestWithParam<refused_choice> {};

TEST_P(tiny_moe_paging_choice, that_cannot_be_is_refused_in_words) {
  paging_choice choice;
  GetParam().first(choice);
  std::string found = "made";
  try {
    (void)make_paging(weights(), choice, nothing_counted());
  } catch (const std::exception& error) {
    found = error.what();
  }
  EXPECT_THAT(found, HasSubstr(GetParam().second));
}
const refused_choice choices[] = {
    {[](auto& c) { c.policies.miss = "fetch_lowest"; }, "needs two or more precisions"},
    {[](auto& c) { c.policies.eviction = "lhu"; }, "needs 2 or more precisions, and there is 1"},
    {[](auto& c) { c.link = "0GB/s"; }, "--link: '0GB/s'"},
    {[](auto& c) { c.link = "1GB/s", c.latency = "soon"; }, "--latency: 'soon'"},
    {[](auto& c) { c.precision = "8:3"; }, "8:3"},
    {[](auto& c) { c.policies.predictor = "crystal"; }, "next-router"},
    {[](auto& c) { c.policies.predictor = "co-activation:reach=0"; }, "reach = 0, accepted: 1"},
    {[](auto& c) { c.policies.predictor = "co-activation:reach=4:decay=1"; }, "made"},
    {[](auto& c) { c.policies.prefetch = "noisy_oracle"; }, "needs the future"},
    {[](auto& c) { c.policies.prefetch = "next_layer_top_k:depth=12"; }, "made"},
    {[](auto& c) { c.policies.pre_eviction = "passive"; }, "none, active_evict"},
    {[](auto& c) { c.policies.pre_eviction = "active_evict:r_max=-1"; }, "r_max"},
    {[](auto& c) { c.policies.routing = "budget_top_k"; }, "with --pre-eviction active_evict"},
    {[](auto& c) {
       c.policies.routing = "budget_top_k";
       c.policies.pre_eviction = "active_evict:release=end";
     },
     "made"},
    {[](auto& c) {
       c.policies.predictor = "learned-gate";
       c.policies.pre_eviction = "active_evict";
     },
     "weights=FILE"},
};
INSTANTIATE_TEST_SUITE_P(rows, tiny_moe_paging_choice, testing::ValuesIn(choices),
                         hotset::support::by_place);

}  // namespace
}  // namespace prefetching_test
