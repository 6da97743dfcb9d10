// SPDX-License-Identifier: Apache-2.0
// After construction, nothing on the hot path allocates: operator new is counted for the whole program.

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "allocation.hpp"
#include "device_experts.hpp"
#include "host_experts.hpp"
#include "hotset/admission/after_n_uses.hpp"
#include "hotset/admission/budgeted.hpp"
#include "hotset/admission/least_valuable.hpp"
#include "hotset/cache/slot_cache.hpp"
#include "hotset/cuda/cuda_backend.hpp"
#include "hotset/cuda/maps/map_rows.hpp"
#include "hotset/eviction/least_stale.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/miss/compute_on_host.hpp"
#include "hotset/miss/drop.hpp"
#include "hotset/miss/drop_cascade.hpp"
#include "hotset/miss/fetch_lowest.hpp"
#include "hotset/miss/fetch_priority.hpp"
#include "hotset/miss/substitute.hpp"
#include "hotset/policy/any/any_eviction_policy.hpp"
#include "hotset/policy/any/any_miss_policy.hpp"
#include "hotset/policy/any/any_predictor.hpp"
#include "hotset/policy/any/any_prefetch_policy.hpp"
#include "hotset/policy/routing_policy.hpp"
#include "hotset/predict/co_activation.hpp"
#include "hotset/predict/gate_predictors.hpp"
#include "hotset/predict/learned_gate.hpp"
#include "hotset/predict/prediction_score.hpp"
#include "hotset/predict/similar_steps_predictor.hpp"
#include "hotset/prefetch/next_layer_top_k.hpp"
#include "hotset/prefetch/popular.hpp"
#include "hotset/prefetch/previous_step.hpp"
#include "hotset/prefetch/score_threshold.hpp"
#include "hotset/registry/policy_registry.hpp"
#include "hotset/routing/cache_aware.hpp"
#include "hotset/routing/router_order.hpp"
#include "hotset/transfer/host_backend.hpp"
#include "lab/replay/clock_backend.hpp"
#include "random_source.hpp"

namespace hotset {
namespace {

using support::allocations;

const geometry shape{.layers = 3, .experts = 24, .top_k = 4, .max_tokens_per_visit = 6};

/// Runs every operation of a pager between two visits many times, with all scratch space full.
template <class Pager>
void work(Pager& p, visit_plan& plan, const std::vector<expert_id>& ids,
          const std::vector<float>& weights, const std::vector<prefetch_request>& requests,
          support::random_source& random) {
  for (step_id step = 0; step < 60; ++step)
    for (const auto layer : each<layer_id>(3)) {
      routing_view view;
      view.layer = layer;
      view.step = step;
      view.ordinal = step * 3 + static_cast<std::uint64_t>(layer);
      view.kind = static_cast<request_class>(random.below(3));
      const auto tokens = random.one_in(2) ? 6 : 1;
      const auto from = random.below(ids.size() - 24);
      view.experts = std::span(ids).subspan(from, static_cast<std::size_t>(tokens) * 4);
      view.weights = std::span(weights).subspan(from, static_cast<std::size_t>(tokens) * 4);
      auto planned = p.plan(view, plan);
      while (planned == status::ok) {
        if (random.one_in(5)) {
          (void)p.abort(plan);
          break;
        }
        for (const auto slot : plan.slots())
          if (slot != no_slot && p.slot(slot).state == slot_state::resident) p.pin(slot);
        for (const auto slot : plan.slots())
          if (slot != no_slot) p.unpin({slot, p.slot(slot).generation});
        (void)p.commit(plan);
        if (!plan.more()) break;
        planned = p.plan_next(plan);
      }
      const visit_context context{layer, p.layout().pool_of_layer(layer), step, view.ordinal,
                                  view.kind};
      if (p.plan_prefetch(context,
                          std::span(requests).subspan(random.below(requests.size() - 4), 4),
                          plan) == status::ok) {
        (void)p.commit(plan);
        for (const auto& f : plan.fills())
          random.one_in(4) ? p.failed(f.slot, f.generation) : p.arrived(f.slot, f.generation);
      }
      if (random.one_in(10)) p.trim(context, random.below(12), {});
      if (random.one_in(10)) (void)p.invalidate(expert_key{layer, expert_id{random.id_below(24)}});
      if (random.one_in(10)) (void)p.set_quota(layer, 4 + random.id_below(6));
    }
}

template <class Eviction, class Admission = always>
std::size_t allocations_of(typename Eviction::config eviction = {},
                           typename Admission::config admission = {},
                           visit_split split = visit_split::by_token) {
  support::random_source random(9);
  std::vector<expert_id> ids(400);
  std::vector<float> weights(400);
  std::vector<prefetch_request> requests(100);
  for (auto& id : ids) id = expert_id{random.id_below(26) - 1};
  for (auto& w : weights) w = static_cast<float>(random.below(100)) / 100.0F;
  for (auto& r : requests)
    r = {{layer_id{random.id_below(3)}, expert_id{random.id_below(24)}}, random.below(60)};
  std::size_t total = 0;
  for (const auto& layout :
       {pool_layout::shared(shape, 9).value(), pool_layout::per_layer(shape, 7).value()}) {
    pager<Eviction, Admission> p({.layout = layout,
                                  .eviction = eviction,
                                  .admission = admission,
                                  .split = split,
                                  .refuse_unknown_ids = false});
    auto plan = p.make_plan();
    const auto before = allocations.load();
    work(p, plan, ids, weights, requests, random);
    total += allocations.load() - before;
    EXPECT_GT(p.stats().split_visits, 0U);
  }
  return total;
}

TEST(no_allocation, the_counter_counts) {
  const auto before = allocations.load();
  const std::vector<int> some(3);
  EXPECT_GT(allocations.load(), before);
}

TEST(no_allocation, lru) { EXPECT_EQ(allocations_of<lru>(), 0U); }
TEST(no_allocation, lru_split_by_expert) {
  EXPECT_EQ(allocations_of<lru>({}, {}, visit_split::by_expert), 0U);
}
TEST(no_allocation, after_n_uses) { EXPECT_EQ((allocations_of<lru, after_n_uses>()), 0U); }
TEST(no_allocation, budgeted) { EXPECT_EQ((allocations_of<least_stale, budgeted>()), 0U); }
TEST(no_allocation, least_valuable) { EXPECT_EQ((allocations_of<lru, least_valuable>()), 0U); }

/// Every listed eviction policy of one precision, and chains with parameters.
std::vector<std::string> eviction_chains() {
  std::vector<std::string> chains{"lfu:history=resident:ageing_period=17",
                                  "activation_ratio:requests=1", "protect_hot+lru",
                                  "protect_decode+lfu", "reserve_prefetch:share=0.3+lru"};
  for (const auto& row : policies().eviction.rows())
    if (row.make && row.traits.fewest_precisions == 1) chains.push_back(row.name);
  return chains;
}
class no_allocation_of : public testing::TestWithParam<std::string> {};

TEST_P(no_allocation_of, a_policy_by_name) {
  std::vector<future_uses::event> events;
  for (std::size_t n = 0; n < 180; ++n)
    events.push_back({n, {static_cast<layer_id>(n % 3), static_cast<expert_id>(n % 24)}});
  policy_knowledge known;
  known.future = std::make_shared<const future_uses>(future_uses::create(shape, events).value());
  known.profile.counts.assign(shape.keys(), 1.0);
  const auto policy = policies().make_eviction(GetParam(), known);
  ASSERT_TRUE(policy) << policy.error().message;
  EXPECT_EQ(allocations_of<any_eviction_policy>(*policy), 0U);
}
INSTANTIATE_TEST_SUITE_P(policies, no_allocation_of, testing::ValuesIn(eviction_chains()),
                         [](const auto& instance) {
                           auto name = instance.param;
                           std::ranges::replace_if(
                               name, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
                           return name;
                         });

/// A CUDA runtime that does nothing and allocates only on request. Every call succeeds; an event is complete at its
/// third query.
class quiet_cuda_runtime final : public cuda::runtime {
 public:
  using code = cuda::error_code;
  [[nodiscard]] std::string_view error_name(code) const noexcept override { return "none"; }
  [[nodiscard]] std::string_view error_text(code) const noexcept override { return "none"; }
  code device_count(int& count) noexcept override { return give(count, 1); }
  code current_device(int& device) noexcept override { return give(device, 0); }
  code set_device(int) noexcept override { return code::success; }
  code memory_info(std::size_t& free, std::size_t& total) noexcept override {
    total = 0;
    return give(free, std::size_t{0});
  }
  code allocate(void*& memory, std::size_t bytes) noexcept override {
    return give(memory, std::malloc(bytes));
  }
  code free(void* memory) noexcept override {
    std::free(memory);
    return code::success;
  }
  code allocate_host(void*& memory, std::size_t bytes) noexcept override {
    return allocate(memory, bytes);
  }
  code free_host(void* memory) noexcept override { return free(memory); }
  code register_host(void*, std::size_t, bool) noexcept override { return code::success; }
  code unregister_host(void*) noexcept override { return code::success; }
  code create_stream(cuda::stream_handle& stream, cuda::stream_priority) noexcept override {
    return give(stream, static_cast<cuda::stream_handle>(nullptr));
  }
  code destroy_stream(cuda::stream_handle) noexcept override { return code::success; }
  code wait_event(cuda::stream_handle, cuda::event_handle) noexcept override {
    return code::success;
  }
  code synchronize_stream(cuda::stream_handle) noexcept override { return code::success; }
  code is_capturing(cuda::stream_handle, bool& capturing) noexcept override {
    return give(capturing, false);
  }
  code create_event(cuda::event_handle& event) noexcept override {
    return give(event, static_cast<cuda::event_handle>(nullptr));
  }
  code destroy_event(cuda::event_handle) noexcept override { return code::success; }
  code record_event(cuda::event_handle, cuda::stream_handle) noexcept override {
    return code::success;
  }
  code query_event(cuda::event_handle) noexcept override {
    return ++queries_ % 3 == 0 ? code::success : code::not_ready;
  }
  code synchronize_event(cuda::event_handle) noexcept override { return code::success; }
  [[nodiscard]] bool has_copy_batch() const noexcept override { return true; }
  code copy(const cuda::copy_request&, cuda::stream_handle) noexcept override {
    return code::success;
  }
  code copy_on_device(const cuda::copy_request&, cuda::stream_handle) noexcept override {
    return code::success;
  }
  code copy_batch(std::span<void* const>, std::span<const void* const>,
                  std::span<const std::size_t>, cuda::stream_handle) noexcept override {
    return code::success;
  }

 private:
  template <class T>
  static code give(T& out, T value) noexcept {
    out = value;
    return code::success;
  }
  std::atomic<std::uint64_t> queries_{0};
};

/// Visits, some larger than the cache, with prefetches between them. `update(cache, layer)` runs after every resolve.
template <class Backend, class Update>
std::size_t allocations_of_a_cache(const pool_layout& layout, Backend& backend,
                                   typename Backend::stream_type& stream, Update update) {
  support::random_source random(4);
  std::vector<expert_id> ids(400);
  for (auto& id : ids) id = expert_id{random.id_below(26) - 1};
  const std::vector<prefetch_request> requests{
      {{0_layer, 1_expert}, 0}, {{1_layer, 2_expert}, 0}, {{2_layer, 3_expert}, 0}};
  slot_cache cache(pager<lru>({.layout = layout, .refuse_unknown_ids = false}), backend);
  auto visit = cache.make_visit();
  const auto before = allocations.load();
  std::size_t failures = 0;
  for (step_id step = 0; step < 100; ++step) {
    routing_view view;
    view.layer = static_cast<layer_id>(step % 3);
    view.step = step / 3;
    view.experts = std::span(ids).subspan(random.below(ids.size() - 24), step % 2 == 0 ? 24 : 4);
    auto now = cache.resolve(view, stream, visit);
    while (now == status::ok) {
      update(cache, view.layer);
      cache.release(visit, stream);
      if (!visit.more()) break;
      now = cache.resolve_next(stream, visit);
    }
    failures += now == status::ok ? 0U : 1U;
    failures += cache.prefetch({}, requests, stream) == status::ok ? 0U : 1U;
  }
  (void)cache.settle();
  EXPECT_EQ(failures, 0U);
  return allocations.load() - before;
}

TEST(no_allocation, resolve_and_release_with_a_host_backend) {
  const auto layout = pool_layout::shared(shape, 9).value();
  support::host_experts experts(layout);
  for (const auto mode : {host_stream::mode::caller, host_stream::mode::worker}) {
    host_backend<memory_expert_source> backend(experts.source, experts.bank);
    host_stream stream(mode);
    EXPECT_EQ(allocations_of_a_cache(layout, backend, stream, [](const auto&, layer_id) {}), 0U);
    stream.drain();
  }
}

TEST(no_allocation, resolve_and_release_with_a_cuda_backend) {
  const auto layout = pool_layout::shared(shape, 9).value();
  for (const bool page_locked : {true, false}) {
    quiet_cuda_runtime api;
    const support::device_experts experts(api, layout, page_locked);
    cuda::sticky_failure failures;
    auto engine = cuda::stream::create(api, 0).value();
    auto rows = cuda::map_rows::create(api, shape, {.ring_rows = 4}, failures).value();
    const auto backend = cuda::cuda_backend<memory_expert_source>::create(
                             api, experts.host.source, experts.bank, experts.pages,
                             {.tickets = 512,
                              .chunk_bytes = 50,
                              .chunks_ahead = 2,
                              .staging_pieces = page_locked ? 0U : 3U,
                              .staging_piece_bytes = 50})
                             .value();
    const auto update = [&](const auto& cache, layer_id layer) {
      EXPECT_EQ(rows.update(cache, layer, engine), cuda::error_code::success);
    };
    EXPECT_EQ(allocations_of_a_cache(layout, *backend, engine, update), 0U);
    EXPECT_GT(backend->counts().bytes_direct + backend->counts().bytes_staged, 0U);
  }
}

constexpr std::size_t hidden_width = 5;

/// Uses all four of SpecMD's dimensions at a gate, over a link whose copies take time.
template <class Miss>
std::size_t allocations_of_a_gate(
    const pool_layout& layout, typename Miss::config miss, any_prefetch_policy::config prefetch,
    any_routing_policy::config routing,
    const any_predictor::config& predictor = any_predictor::holding<current_gate>()) {
  const auto& model = layout.shape();
  const auto experts = static_cast<std::size_t>(model.experts);
  support::random_source random(6);
  std::vector<expert_id> ids(24);
  std::vector<float> weights(24), logits(6 * experts), probabilities(6 * experts);
  const std::vector<float> hidden(6 * hidden_width, 0.5F);
  any_routing_policy router(model, routing);
  any_prefetch_policy prefetcher(model, prefetch);
  std::vector<prefetch_request> requests(prefetcher.most_requests());
  auto predicting = any_predictor::create(model, predictor).value();
  prediction_score score(model);
  clock_backend backend(
      {.link = link_model({.bytes_per_second = 1000, .chunk_bytes = 3}), .shape = model});
  clock_stream stream;
  slot_cache cache(pager<lru, always, Miss>({.layout = layout,
                                             .miss = std::move(miss),
                                             .guard = prefetch_guard::predicted,
                                             .refuse_unknown_ids = false}),
                   backend, {.queue = {.most_waiting = 8}, .most_under_way = 4});
  auto visit = cache.make_visit();
  const auto before = allocations.load();
  std::size_t failures = 0;
  for (step_id step = 0; step < 120; ++step) {
    const auto tokens = step % 4 == 0 ? std::size_t{6} : std::size_t{1};
    for (auto& id : ids) id = expert_id{random.id_below(26) - 1};
    for (auto& w : weights) w = static_cast<float>(random.below(100)) / 100.0F;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      logits[i] = static_cast<float>(random.below(1000)) / 100.0F;
      probabilities[i] = logits[i] / 240.0F;
    }
    routing_view view;
    view.layer = static_cast<layer_id>(step % 3);
    view.step = step / 3;
    view.experts = std::span(ids).first(tokens * 4);
    view.weights = std::span(weights).first(tokens * 4);
    view.logits = std::span(logits).first(tokens * experts);
    view.probabilities = std::span(probabilities).first(tokens * experts);
    view.hidden = std::span(hidden).first(tokens * hidden_width);
    (void)router.route(view, {cache.pager().located(view.layer)}, std::span(ids).first(tokens * 4),
                       std::span(weights).first(tokens * 4));
    score.routed(view);
    prefetcher.observe(view);
    auto now = cache.resolve(view, stream, visit);
    while (now == status::ok) {
      if (!visit.more()) {
        const auto expected = predicting.expect(view);
        const auto wanted = std::span(requests).first(prefetcher.propose(view, expected, requests));
        for (const auto& request : wanted) score.requested(request);
        failures += cache.prefetch(visit.plan().context(), wanted, stream, expected) == status::ok
                        ? 0U
                        : 1U;
      }
      stream.run(5'000'000);
      cache.release(visit, stream);
      if (!visit.more()) break;
      now = cache.resolve_next(stream, visit);
    }
    failures += now == status::ok ? 0U : 1U;
    stream.synchronise();
  }
  EXPECT_EQ(failures, 0U);
  const auto made = allocations.load() - before;
  EXPECT_GT(cache.stats().misses, 0U);
  return made;
}

const geometry ladder{.layers = 3,
                      .experts = 24,
                      .top_k = 4,
                      .max_tokens_per_visit = 6,
                      .expert_bytes = {8},
                      .layer_size_class = {},
                      .lower_precisions = {{4}}};

TEST(no_allocation, every_prefetcher) {
  const auto layout = pool_layout::shared(shape, 12).value();
  const auto router = any_routing_policy::holding<router_order>();
  const auto with = [&](any_prefetch_policy::config prefetch) {
    return allocations_of_a_gate<fetch>(layout, {}, std::move(prefetch), router);
  };
  EXPECT_EQ(with(any_prefetch_policy::holding<next_layer_top_k>({.overfetch = 1.5})), 0U);
  EXPECT_EQ(with(any_prefetch_policy::holding<score_threshold>({.window = 64})), 0U);
  EXPECT_EQ(with(any_prefetch_policy::holding<previous_step>()), 0U);
  EXPECT_EQ(with(any_prefetch_policy::holding<popular>()), 0U);
  EXPECT_EQ(allocations_of_a_gate<fetch>(
                layout, {}, any_prefetch_policy::holding<next_layer_top_k>({.depth = 2}), router,
                any_predictor::holding<co_activation>({.depth = 2})),
            0U);
  EXPECT_EQ(
      allocations_of_a_gate<fetch>(
          layout, {}, any_prefetch_policy::holding<next_layer_top_k>({.depth = 2}), router,
          any_predictor::holding<similar_steps_predictor>({.depth = 2, .history = {.rows = 256}})),
      0U);
}

TEST(no_allocation, every_predictor_by_hidden_states) {
  const auto layout = pool_layout::shared(shape, 12).value();
  const auto with = [&](const any_predictor::config& predictor) {
    return allocations_of_a_gate<fetch>(layout, {},
                                        any_prefetch_policy::holding<next_layer_top_k>(),
                                        any_routing_policy::holding<router_order>(), predictor);
  };
  const std::vector<float> router(static_cast<std::size_t>(shape.experts) * hidden_width, 0.25F);
  const std::vector<float> bias(static_cast<std::size_t>(shape.experts), 0.125F);
  auto routers = any_predictor::holding<next_router>(
      {.scores = {.function = score_function::sigmoid, .groups = 4, .top_groups = 2}});
  routers.d_model = static_cast<std::int32_t>(hidden_width);
  routers.routers.assign(static_cast<std::size_t>(shape.layers), router);
  routers.biases.assign(static_cast<std::size_t>(shape.layers), bias);
  EXPECT_EQ(with(routers), 0U);
  const learned_gate::dimensions size{shape.layers, shape.experts,
                                      static_cast<std::int32_t>(hidden_width), 1, 7};
  EXPECT_EQ(with(any_predictor::holding<learned_gate>(
                {.trained = std::make_shared<const learned_gate::weights>(
                     *learned_gate::weights::create(size))})),
            0U);
}

TEST(no_allocation, every_miss_policy_and_routing) {
  const auto layout =
      pool_layout::shared_by_precision(ladder, std::array<std::int64_t, 2>{6, 8}).value();
  const auto bent = any_routing_policy::holding<cache_aware>();
  const auto prefetch = any_prefetch_policy::holding<next_layer_top_k>();
  const auto with = [&](any_miss_policy::config miss) {
    return allocations_of_a_gate<any_miss_policy>(layout, std::move(miss), prefetch, bent);
  };
  EXPECT_EQ(with(any_miss_policy::holding<fetch_lowest>()), 0U);
  EXPECT_EQ(with(any_miss_policy::holding<fetch_priority>({.window = 32})), 0U);
  EXPECT_EQ(with(any_miss_policy::holding<drop>()), 0U);
  EXPECT_EQ(with(any_miss_policy::holding<drop_cascade>()), 0U);
  EXPECT_EQ(with(any_miss_policy::holding<substitute>({.tolerance = 0.5})), 0U);
  EXPECT_EQ(
      with(any_miss_policy::holding<compute_on_host>({.split = host_split::bandwidth_matched})),
      0U);
}

}  // namespace
}  // namespace hotset
