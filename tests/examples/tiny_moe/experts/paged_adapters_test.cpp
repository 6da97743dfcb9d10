// SPDX-License-Identifier: Apache-2.0
// Adapters with paged experts: keys are layers and virtual experts.
#include <algorithm>
#include <cstdint>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "adapter_samples.hpp"
#include "case_names.hpp"
#include "hotset/core/memory_budget.hpp"
#include "lab/errors.hpp"
#include "lab/replay/registry.hpp"
#include "sim_samples.hpp"
#include "tiny_moe/experts/adapter_experts.hpp"
#include "tiny_moe/serving/serving.hpp"

namespace paged_adapters_test {
namespace {

using namespace adapter_samples;
using hotset::cache_scope;
using paging_samples::failing_backend;
using paging_samples::lru_pager;
using paging_samples::refusing_backend;
using testing::HasSubstr;

const adapter_experts& over_base() {
  static const adapter_experts made(weights(), three_pointers());
  return made;
}
constexpr std::size_t most_rows = 32;  // of a mixed pass
paging_config in(cache_scope scope, std::string_view budget) {
  return {.layout = layout_of(geometry_of(weights(), over_base(), most_rows), scope, budget),
          .adapters = &over_base()};
}
void expect_all_as_alone(expert_provider& experts) {
  const auto got = mixed_logits(experts, over_base().virtual_experts());
  for (adapter_id a = 0; a <= 3; ++a) EXPECT_TRUE(begins_as_alone(got[a], a)) << a;
}

/// Serves with another provider and records the virtual experts of each visit, from the adapters' own lists.
class recording final : public expert_provider {
 public:
  struct visit_ids {
    hotset::layer_id layer{};
    std::uint64_t step = 0;
    request_kind kind = request_kind::decode;
    std::vector<std::int32_t> ids;
    std::vector<std::uint32_t> sequences;
  };
  explicit recording(expert_provider& inner) : inner_(inner) {}
  void on_step(const step_inputs& step) override { inner_.on_step(step); }
  void run(const visit_inputs& visit, visit_compute& compute) override {
    visit_ids made{visit.layer, visit.step, visit.kind, {}, {}};
    for (std::size_t i = 0; i < visit.ids.size(); ++i)
      made.ids.push_back(virtual_id(visit.layer, visit.ids[i], visit.adapters[i / visit.top_k]));
    made.sequences.assign(visit.sequences.begin(), visit.sequences.end());
    visits.push_back(std::move(made));
    inner_.run(visit, compute);
  }
  std::vector<visit_ids> visits;

 private:
  static std::int32_t virtual_id(hotset::layer_id layer, std::int32_t expert, adapter_id adapter) {
    if (adapter == base_model) return expert;
    const auto& tuned = three_pointers()[adapter - 1]->tuned()[index_of(layer)];
    const auto found = std::ranges::find(tuned, hotset::expert_id{expert});
    if (found == tuned.end()) return expert;
    // The largest adapters tune 8 experts of a layer.
    return 32 + 8 * static_cast<std::int32_t>(adapter - 1) +
           static_cast<std::int32_t>(found - tuned.begin());
  }
  expert_provider& inner_;
};

class tiny_moe_paged_adapters_by
    : public testing::TestWithParam<std::tuple<cache_scope, const char*, const char*>> {};

TEST_P(tiny_moe_paged_adapters_by, rows_of_a_pass_each_get_the_bytes_of_their_own_merged_model) {
  const auto& [scope, budget, eviction] = GetParam();
  const auto experts = make_paged_experts(weights(), in(scope, budget), eviction);
  expect_all_as_alone(*experts);
  EXPECT_TRUE(experts->is_exact());
}
INSTANTIATE_TEST_SUITE_P(
    caches, tiny_moe_paged_adapters_by,
    testing::Combine(testing::Values(cache_scope::shared, cache_scope::per_layer),
                     testing::Values("4", "20%", "100%"),
                     testing::Values("lru", "lfu", "least_stale", "protect_hot+lfru")),
    hotset::support::by_place);

TEST(tiny_moe_paged_adapters, on_a_worker_with_prefetch_by_ids_they_get_the_same_bytes) {
  for (const char* prefetch : {"previous_step", "next_layer_top_k:depth=2"}) {
    SCOPED_TRACE(prefetch);
    auto config = in(cache_scope::shared, "30%");
    config.stream = hotset::host_stream::mode::worker;
    config.gate.prefetch = hotset::lab::make_prefetch(prefetch);
    config.gate.predictor =
        hotset::lab::make_predictor("co-activation", hotset::lab::predictor_names(true, false));
    const auto experts = make_paged_experts(weights(), config, "lru");
    expect_all_as_alone(*experts);
    EXPECT_GT(experts->stats().prefetch_hits, 0U);
  }
}

TEST(tiny_moe_paged_adapters, copies_that_fail_now_and_then_change_no_byte) {
  paged_experts<lru_pager, refusing_backend> refusing(weights(), in(cache_scope::shared, "20%"));
  refusing.backend().period = 3;
  refusing.backend().burst = 2;
  expect_all_as_alone(refusing);
  EXPECT_GT(refusing.backend().fences, 12);
  auto config = in(cache_scope::shared, "20%");
  config.cache.attempts = 1;
  paged_experts<lru_pager, failing_backend> failing(weights(), config);
  failing.backend().broken.failures = 40;
  expect_all_as_alone(failing);
  EXPECT_EQ(failing.backend().broken.failures, 0);
  EXPECT_GT(failing.host_visits(), 0U);
}

// Adapters share the base model's experts: with room for all, each virtual expert is copied at its first use.
TEST(tiny_moe_paged_adapters, an_untuned_expert_is_copied_once_for_all_adapters) {
  paged_experts<lru_pager> experts(weights(), in(cache_scope::shared, "100%"));
  recording seen(experts);
  (void)mixed_logits(seen, over_base().virtual_experts());
  std::set<std::pair<hotset::layer_id, std::int32_t>> distinct;
  std::set<std::pair<hotset::layer_id, std::int32_t>> of_base;
  for (const auto& visit : seen.visits)
    for (const auto id : visit.ids) {
      distinct.emplace(visit.layer, id);
      if (id < 32) of_base.emplace(visit.layer, id);
    }
  EXPECT_GT(of_base.size(), 100U);
  EXPECT_GT(distinct.size(), of_base.size() + 50);
  EXPECT_EQ(experts.stats().misses, distinct.size());
  EXPECT_EQ(experts.bytes_moved(), distinct.size() * 23040);
}

// Heat counts virtual experts: decisions equal those of a pager that gets virtual experts.
TEST(tiny_moe_paged_adapters, decisions_are_made_over_virtual_experts) {
  for (const char* eviction : {"lfu", "least_stale"}) {
    SCOPED_TRACE(eviction);
    const auto config = in(cache_scope::shared, "20%");
    const auto experts = make_paged_experts(weights(), config, eviction);
    recording seen(*experts);
    (void)mixed_logits(seen, over_base().virtual_experts());
    auto replayed = hotset::lab::make_pager({.eviction = eviction, .layout = config.layout});
    auto plan = replayed.make_plan();
    std::uint64_t ordinal = 0;
    for (const auto& visit : seen.visits)
      ASSERT_EQ(replayed.serve({.layer = visit.layer,
                                .step = visit.step,
                                .kind = static_cast<hotset::request_class>(visit.kind),
                                .experts = visit.ids,
                                .ordinal = ordinal++,
                                .sequences = visit.sequences},
                               plan, [](const hotset::visit_group&) {}),
                hotset::status::ok);
    EXPECT_GT(experts->stats().misses, 500U);
    EXPECT_EQ(replayed.stats().misses, experts->stats().misses);
    EXPECT_EQ(replayed.decision_hash(), experts->decision_hash());
  }
}

TEST(tiny_moe_paged_adapters, requests_get_their_answers_while_slots_are_resized) {
  hotset::memory_budget budget(12ULL * 12 * 23040);
  auto config = in(cache_scope::per_layer, "100%");
  config.memory = &budget;
  const auto experts = make_paged_experts(weights(), config, "lru");
  ASSERT_EQ(experts->slots()->open(6), hotset::status::ok);
  kv_pool pool(weights().config(), {.block_tokens = 8, .blocks = 64});
  batch_engine decoder(weights(), *experts, pool,
                       {.max_tokens = most_rows, .virtual_experts = over_base().virtual_experts()});
  std::vector<serving_request> requests;
  for (std::uint64_t i = 0; i < 8; ++i)
    requests.push_back({.arrival = i * 3,
                        .prompt = bytes_of(text.substr(i, 20)),
                        .tokens = 5,
                        .adapter = static_cast<adapter_id>(i % 4)});
  std::uint64_t resizes = 0;
  const auto report =
      serve(decoder, requests, {.max_tokens = most_rows}, [&](const drained_point& at) {
        experts->drain();
        auto& slots = *experts->slots();
        const auto units = 4 + at.step % 9;
        const auto done = units > slots.capacity() ? slots.grow(units) : slots.shrink(units);
        if (done == hotset::status::ok) ++resizes;
      });
  EXPECT_GT(resizes, 8U);
  expect_complete(report, requests);
}

TEST(tiny_moe_paged_adapters, a_row_of_an_unknown_adapter_is_refused_and_the_next_pass_is_right) {
  const auto experts = make_paged_experts(weights(), in(cache_scope::shared, "20%"), "lru");
  {
    kv_pool pool(weights().config(), {.block_tokens = 8, .blocks = 8});
    batch_engine decoder(weights(), *experts, pool,
                         {.virtual_experts = over_base().virtual_experts()});
    const auto stranger = pool.open(8, 4);
    ASSERT_TRUE(pool.reserve(stranger, 1));
    const token_row row{stranger, 65};
    EXPECT_THROW(decoder.forward({&row, 1}, request_kind::prefill), provider_error);
    decoder.close(stranger);
  }
  expect_all_as_alone(*experts);
}

TEST(tiny_moe_paged_adapters, policies_that_need_router_scores_are_refused) {
  const auto refused = [](const paging_config& config, std::string_view eviction = "lru") {
    return hotset::support::refusal<hotset::lab::usage_error>(
        [&] { (void)make_paged_experts(weights(), config, eviction); });
  };
  auto plain = in(cache_scope::shared, "20%");
  EXPECT_THAT(refused(plain, "importance"), HasSubstr("goes by the router's scores"));
  static const expert_library copies(weights(), "16");
  using change = void (*)(paging_config&);
  const std::vector<std::pair<change, const char*>> rows{
      {[](auto& c) { c.layout = layout_of(weights(), cache_scope::shared, "20%"); },
       "a layout of 32 experts, accepted with adapters: 56"},
      {[](auto& c) { c.library = &copies; },
       "precisions, accepted with adapters: none but that of the file"},
      {[](auto& c) { c.gate.prefetch = hotset::lab::make_prefetch("next_layer_top_k"); },
       "predictor next-router goes by the router's scores, accepted with adapters: what goes by "
       "ids"},
      {[](auto& c) { c.gate.routing = hotset::lab::make_routing("cache_aware:lambda=0.3"); },
       "routing policy cache_aware goes by the router's scores, accepted with adapters: what goes "
       "by ids"},
      {[](auto& c) { c.miss = hotset::lab::make_miss("substitute"); },
       "a miss policy that goes by the router's scores, accepted with adapters: one that does "
       "not"}};
  for (const auto& [change_config, says] : rows) {
    auto other = plain;
    change_config(other);
    EXPECT_EQ(refused(other), says);
  }
  plain.miss = hotset::lab::make_miss("drop:keep=2");
  EXPECT_NO_THROW((void)make_paged_experts(weights(), plain, "lru"));
}

}  // namespace
}  // namespace paged_adapters_test
