// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/experts/paged_experts.hpp"

#include <array>
#include <stdexcept>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/admission/budgeted.hpp"
#include "hotset/eviction/lru.hpp"
#include "lab/errors.hpp"
#include "lab/replay/registry.hpp"
#include "paging_samples.hpp"

namespace paged_experts_test {
namespace {

using namespace paging_samples;
using testing::HasSubstr;

constexpr auto worker = hotset::host_stream::mode::worker;

paging_config in(cache_scope scope, std::string_view budget) {
  return {.layout = layout_of(weights(), scope, budget)};
}

TEST(tiny_moe_paged_experts, hits_misses_and_the_host_copy_give_the_same_bytes) {
  const auto wanted = resident_logits(text);
  paged_experts<lru_pager> all(weights(), in(cache_scope::shared, "100%"));
  engine decoder(weights(), all);
  EXPECT_TRUE(same_bytes(wanted, logits_of(decoder, text)));
  EXPECT_EQ(all.stats().hits, 0U);
  const auto misses = all.stats().misses;
  EXPECT_GT(misses, 300U);
  EXPECT_TRUE(same_bytes(wanted, logits_of(decoder, text)));
  EXPECT_EQ(all.stats().misses, misses);
  EXPECT_EQ(all.stats().hits, misses);
  EXPECT_EQ(all.bytes_moved(), misses * 23040U);

  const auto host = make_paged_experts(weights(), in(cache_scope::shared, "25%"), "lru",
                                       "budgeted:fills_per_visit=0");
  EXPECT_TRUE(same_bytes(wanted, logits_of(*host, text)));
  EXPECT_EQ(host->stats().bypasses, misses);
  EXPECT_EQ(host->bytes_moved(), 0U);
}

TEST(tiny_moe_paged_experts, refused_experts_use_transient_slots) {
  const auto wanted = resident_logits(text);
  for (const auto mode : {hotset::host_stream::mode::caller, worker}) {
    auto config = in(cache_scope::shared, "25%");
    config.stream = mode;
    config.transient = 3;
    const auto some = make_paged_experts(weights(), config, "lru", "budgeted:fills_per_visit=1");
    EXPECT_TRUE(same_bytes(wanted, logits_of(*some, text)));
    const auto stats = some->stats();
    EXPECT_GT(some->streamed(), 0U);
    EXPECT_LT(some->streamed(), stats.bypasses) << "more than three of a visit";
    EXPECT_EQ(some->bytes_moved(), (stats.fills + some->streamed()) * 23040U);
  }
}

TEST(tiny_moe_paged_experts, transient_slots_are_computed_from) {
  auto config = in(cache_scope::shared, "100%");
  config.transient = 64;
  const auto wanted = resident_logits(text);
  hotset::budgeted::config none{.fills_per_visit = 0};
  using pager = hotset::pager<hotset::lru, hotset::budgeted>;
  paged_experts<pager> copied(weights(), config, {}, none);
  EXPECT_TRUE(same_bytes(wanted, logits_of(copied, text)));
  EXPECT_EQ(copied.streamed(), copied.stats().bypasses);
  paged_experts<pager, idle_backend> idle(weights(), config, {}, none);
  EXPECT_FALSE(same_bytes(wanted, logits_of(idle, text)));
}

TEST(tiny_moe_paged_experts, a_transient_copy_that_fails_spoils_no_byte) {
  auto config = in(cache_scope::shared, "25%");
  config.transient = 64;
  using pager = hotset::pager<hotset::lru, hotset::budgeted>;
  const hotset::budgeted::config none{.fills_per_visit = 0};
  paged_experts<pager, failing_backend> told_at_once(weights(), config, {}, none);
  told_at_once.backend().broken.failures = 3;
  EXPECT_TRUE(same_bytes(resident_logits(text), logits_of(told_at_once, text)));
  EXPECT_EQ(told_at_once.streamed(), told_at_once.stats().bypasses - 3) << "the host's";
  config.stream = worker;
  paged_experts<pager, failing_backend> told_late(weights(), config, {}, none);
  engine decoder(weights(), told_late);
  told_late.backend().late = true;
  told_late.backend().broken.failures = 1;
  EXPECT_THROW(logits_of(decoder, text), std::runtime_error);
  EXPECT_TRUE(same_bytes(resident_logits(text), logits_of(decoder, text)));
}

TEST(tiny_moe_paged_experts, transient_slots_go_with_one_precision_and_slots_that_stay) {
  auto config = in(cache_scope::per_layer, "4");
  config.transient = 1;
  hotset::memory_budget memory(1 << 30);
  config.memory = &memory;
  EXPECT_THROW((void)make_paged_experts(weights(), config, "lru"), hotset::lab::usage_error);
  const expert_library library(weights(), "8:4");
  constexpr std::array shares{0.5, 0.5};
  config.layout = layout_of(weights(), cache_scope::shared, "25%", 0, &library, shares);
  config.memory = nullptr;
  config.library = &library;
  EXPECT_THROW((void)make_paged_experts(weights(), config, "lru"), hotset::lab::usage_error);
}

TEST(tiny_moe_paged_experts, slots_are_computed_from) {
  paged_experts<lru_pager, idle_backend> experts(weights(), in(cache_scope::shared, "25%"));
  EXPECT_FALSE(same_bytes(resident_logits(text), logits_of(experts, text)));
}

TEST(tiny_moe_paged_experts, a_split_by_expert_is_reported_as_not_exact) {
  auto config = in(cache_scope::per_layer, "4");
  config.split = hotset::visit_split::by_expert;
  paged_experts<lru_pager> experts(weights(), config);
  const auto wanted = resident_logits(text);
  const auto found = logits_of(experts, text);
  EXPECT_FALSE(experts.is_exact());
  EXPECT_FALSE(same_bytes(wanted, found));
  for (std::size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(wanted[i], found[i], 1e-3);
}

TEST(tiny_moe_paged_experts, a_pass_larger_than_the_layout_allows_is_refused) {
  paged_experts<lru_pager> experts(weights(),
                                   {.layout = layout_of(weights(), cache_scope::shared, "25%", 8)});
  engine decoder(weights(), experts);
  EXPECT_THROW(logits_of(decoder, text), provider_error);
  const auto words = text.substr(0, 8);
  EXPECT_TRUE(same_bytes(resident_logits(words), logits_of(decoder, words)));
}

TEST(tiny_moe_paged_experts, a_copy_that_fails_is_made_again) {
  for (const char* budget : {"4", "25%"}) {
    paged_experts<lru_pager, refusing_backend> experts(weights(), in(cache_scope::shared, budget));
    experts.backend().period = 3;
    EXPECT_TRUE(same_bytes(resident_logits(text), logits_of(experts, text))) << budget;
    EXPECT_GT(experts.stats().failed_fills, 0U);
    EXPECT_EQ(experts.host_visits(), 0U);
  }
}

TEST(tiny_moe_paged_experts, repeated_copy_failures_leave_the_visit_to_the_host) {
  for (const auto stream : {hotset::host_stream::mode::caller, worker}) {
    auto config = in(cache_scope::shared, "4");
    config.stream = stream;
    paged_experts<lru_pager, refusing_backend> experts(weights(), config);
    experts.backend().period = 1;  // all
    EXPECT_TRUE(same_bytes(resident_logits(text), logits_of(experts, text)));
    EXPECT_EQ(experts.host_visits(), 12U);
    experts.backend().period = 40;  // some groups are computed from slots, the rest is not
    experts.backend().burst = 3;
    EXPECT_TRUE(same_bytes(resident_logits(text), logits_of(experts, text)));
    EXPECT_GT(experts.host_visits(), 12U);
    experts.backend().period = 0;
    EXPECT_TRUE(same_bytes(resident_logits(text), logits_of(experts, text)));
  }
}

TEST(tiny_moe_paged_experts, a_copy_that_failed_before_a_worker_read_it_is_made_again) {
  auto config = in(cache_scope::shared, "50%");
  config.stream = worker;
  paged_experts<lru_pager, failing_backend> experts(weights(), config);
  engine decoder(weights(), experts);
  experts.backend().broken.failures = 1;
  EXPECT_TRUE(same_bytes(resident_logits(text), logits_of(decoder, text)));
  EXPECT_EQ(experts.backend().broken.failures, 0);
  EXPECT_TRUE(same_bytes(resident_logits(text), logits_of(decoder, text)));
}

// With prefetches, the prefetch beside the last group is the first call to report the loss of an earlier group.
TEST(tiny_moe_paged_experts, a_copy_that_fails_after_its_read_affects_one_pass_only) {
  for (const bool prefetches : {false, true}) {
    auto config = in(cache_scope::shared, prefetches ? "16" : "50%");
    config.stream = worker;
    if (prefetches) config.gate.prefetch = hotset::lab::make_prefetch("next_layer_top_k");
    paged_experts<lru_pager, failing_backend> experts(weights(), config);
    engine decoder(weights(), experts);
    experts.backend().late = true;
    experts.backend().broken.failures = 1;
    EXPECT_THROW(logits_of(decoder, text), std::runtime_error);
    EXPECT_EQ(decoder.position(), 0U);
    EXPECT_TRUE(same_bytes(resident_logits(text), logits_of(decoder, text)));
  }
}

TEST(tiny_moe_paged_experts, budgets_buy_slots) {
  const auto slots = [](cache_scope scope, std::string_view budget) {
    return layout_of(weights(), scope, budget).slots();
  };
  EXPECT_EQ(slots(cache_scope::shared, "25%"), 96U);
  EXPECT_EQ(slots(cache_scope::per_layer, "25%"), 96U);
  EXPECT_EQ(slots(cache_scope::shared, "96"), 96U);
  EXPECT_EQ(slots(cache_scope::per_layer, "5"), 60U);
  EXPECT_EQ(slots(cache_scope::shared, "1500KiB"), 66U);
  EXPECT_EQ(slots(cache_scope::per_layer, "1500KiB"), 60U);
  EXPECT_EQ(slots(cache_scope::shared, "90KiB"), 4U);
  for (const char* bad : {"24XB", "-1", "", "101%"})
    EXPECT_THROW(slots(cache_scope::shared, bad), hotset::lab::usage_error) << bad;
  for (const char* small : {"3", "89KiB", "0.5%"}) {
    EXPECT_THAT([&] { slots(cache_scope::shared, small); },
                testing::ThrowsMessage<hotset::lab::infeasible_error>(
                    testing::AnyOf(HasSubstr("4 slots"), HasSubstr("90KiB or more"))));
  }
}

TEST(tiny_moe_paged_experts, policies_go_by_name) {
  const auto config = in(cache_scope::shared, "25%");
  for (const auto& [eviction, admission] :
       {std::pair{"lruu", "always"}, std::pair{"belady", "always"}, std::pair{"lru", "sometimes"},
        std::pair{"lru", "after_n_uses:uses=0"}, std::pair{"lru", "always:uses=1"}})
    EXPECT_THROW((void)make_paged_experts(weights(), config, eviction, admission),
                 hotset::lab::usage_error)
        << eviction << " " << admission;
}

}  // namespace
}  // namespace paged_experts_test
