// SPDX-License-Identifier: Apache-2.0
/// One visit, plan and commit, for every policy: top-8 of 128 experts, compared with hand-written caches as floors.

#include <concepts>
#include <cstdint>
#include <memory>
#include <vector>

#include <benchmark/benchmark.h>

#include "hotset/admission/after_n_uses.hpp"
#include "hotset/admission/always.hpp"
#include "hotset/eviction/activation_ratio.hpp"
#include "hotset/eviction/belady.hpp"
#include "hotset/eviction/expert_map_priority.hpp"
#include "hotset/eviction/fifo.hpp"
#include "hotset/eviction/furthest_layer.hpp"
#include "hotset/eviction/gate_score.hpp"
#include "hotset/eviction/importance.hpp"
#include "hotset/eviction/least_stale.hpp"
#include "hotset/eviction/lfru.hpp"
#include "hotset/eviction/lfu.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/eviction/popularity.hpp"
#include "hotset/eviction/protect_hot.hpp"
#include "hotset/eviction/similar_steps.hpp"
#include "hotset/eviction/two_rate.hpp"
#include "hotset/paging/pager.hpp"
#include "hotset/policy/any/any_eviction_policy.hpp"
#include "hotset/trace/future_uses.hpp"
#include "hotset/trace/visit_sequence.hpp"
#include "lab/traces/synthetic/synthetic.hpp"
#include "support/flat_caches.hpp"
#include "support/flat_orders.hpp"
#include "support/flat_pager.hpp"
#include "support/flat_scored_orders.hpp"
#include "support/flat_sorted_orders.hpp"

namespace {

using namespace hotset;
namespace orders = benchmarks::orders;

/// Two kinds of traffic: `hit_heavy` repeats 95 % of its experts from token to token, the other 30 %.
visit_sequence traffic_of(std::int32_t layers, std::uint32_t tokens, bool hit_heavy) {
  return visit_sequence(synthetic_trace({.layers = layers,
                                         .experts = 128,
                                         .top_k = 8,
                                         .tokens = tokens,
                                         .zipf = 0.8,
                                         .stickiness = hit_heavy ? 0.95 : 0.3,
                                         .seed = 11})
                            .value());
}
/// Traffic through 8 layers.
const visit_sequence& traffic(bool hit_heavy) {
  static const auto hits = traffic_of(8, 4000, true);
  static const auto misses = traffic_of(8, 4000, false);
  return hit_heavy ? hits : misses;
}
/// Traffic through the 48 layers of a model.
const visit_sequence& model_traffic(bool hit_heavy) {
  static const auto hits = traffic_of(48, 500, true);
  static const auto misses = traffic_of(48, 500, false);
  return hit_heavy ? hits : misses;
}

/// No key repeats: 8 of 8 miss under every policy.
const visit_sequence& strangers() {
  static const visit_sequence visits = [] {
    routing_trace trace;
    trace.name = "strangers";
    trace.layers = 64;
    trace.experts = 128;
    trace.top_k = 8;
    constexpr std::int32_t tokens = 16;
    for (std::int32_t t = 0; t < tokens; ++t) {
      trace.step.push_back(static_cast<std::uint32_t>(t));
      trace.sequence.push_back(0);
      trace.kind.push_back(request_class::decode);
      for (std::int32_t l = 0; l < trace.layers; ++l)
        for (std::int32_t k = 0; k < 8; ++k) trace.ids.push_back(expert_id{t * 8 + k});
    }
    return visit_sequence(trace);
  }();
  return visits;
}

template <class P>
typename P::config config_for(const visit_sequence&) {
  return {};
}
template <>
belady::config config_for<belady>(const visit_sequence& visits) {
  std::vector<future_uses::event> events;
  for (std::size_t i = 0; i < visits.size(); ++i)
    for (const auto e : visits[i].experts) events.push_back({i, {visits.at(i).layer, e}});
  return {std::make_shared<const future_uses>(future_uses::create(visits.shape(), events).value())};
}
template <>
popularity::config config_for<popularity>(const visit_sequence& visits) {
  std::vector<double> counts(visits.shape().keys(), 0);
  for (std::size_t i = 0; i < visits.size(); ++i)
    for (const auto e : visits[i].experts)
      counts[visits.shape().index({visits.at(i).layer, e})] += 1;
  return {counts, "the trace"};
}
template <>
any_eviction_policy::config config_for<any_eviction_policy>(const visit_sequence&) {
  return any_eviction_policy::holding<lru>();
}

void report(benchmark::State& state, std::uint64_t hits, const visit_sequence& visits) {
  const auto rounds = static_cast<double>(state.iterations());
  state.counters["hit_rate"] = static_cast<double>(hits) / static_cast<double>(visits.accesses());
  state.counters["visit"] =
      benchmark::Counter(rounds * static_cast<double>(visits.size()),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

/// One iteration replays all visits; the counter `visit` is the time of one. Returns the hits.
template <class P, class Admission = always>
std::uint64_t replay(benchmark::State& state, const visit_sequence& visits,
                     const pool_layout& layout) {
  const auto config = config_for<P>(visits);
  std::uint64_t hits = 0;
  for (auto _ : state) {
    state.PauseTiming();
    {
      pager<P, Admission> cache({.layout = layout, .eviction = config});
      auto plan = cache.make_plan();
      state.ResumeTiming();
      for (std::size_t i = 0; i < visits.size(); ++i)
        if (cache.plan(visits[i], plan) != status::ok || cache.commit(plan) != status::ok)
          state.SkipWithError("visit failed");
      state.PauseTiming();
      hits = cache.stats().hits;
    }
    state.ResumeTiming();
  }
  report(state, hits, visits);
  return hits;
}
template <class P>
void BM_Visit(benchmark::State& state) {
  const auto& visits = traffic(state.range(1) != 0);
  (void)replay<P>(state, visits, pool_layout::per_layer(visits.shape(), state.range(0)).value());
}
/// One pool for all layers of a model.
template <class P>
void BM_SharedVisit(benchmark::State& state) {
  const auto& visits = model_traffic(state.range(1) != 0);
  (void)replay<P>(state, visits, pool_layout::shared(visits.shape(), state.range(0)).value());
}
/// With admission: a miss gets a slot at its second use.
template <class P>
void BM_AdmittedVisit(benchmark::State& state) {
  const auto& visits = traffic(state.range(1) != 0);
  (void)replay<P, after_n_uses>(state, visits,
                                pool_layout::per_layer(visits.shape(), state.range(0)).value());
}
/// All accesses miss, in a shared pool of 64 slots.
template <class P>
void BM_AllMiss(benchmark::State& state) {
  const auto& visits = strangers();
  if (replay<P>(state, visits, pool_layout::shared(visits.shape(), 64).value()) != 0)
    state.SkipWithError("a key came twice");
}
template <class Cache>
void BM_AllMissFloor(benchmark::State& state) {
  const auto& visits = strangers();
  std::uint64_t hits = 0;
  for (auto _ : state) {
    state.PauseTiming();
    Cache cache(visits.shape().layers, visits.shape().experts, 64);
    state.ResumeTiming();
    for (std::size_t i = 0; i < visits.size(); ++i)
      benchmark::DoNotOptimize(cache.visit(visits.at(i).layer, visits[i].experts).size());
    hits = cache.hits();
  }
  if (hits != 0) state.SkipWithError("a key came twice");
  report(state, hits, visits);
}

/// Arguments for a floor with the policy's order.
template <class Order, class P>
typename Order::config flat_config_for(const visit_sequence& visits) {
  if constexpr (std::same_as<typename Order::config, typename P::config>)
    return config_for<P>(visits);
  else
    return {};
}
/// Whether the floor decides as the pager with that policy does.
template <class Order, class P>
bool decides_alike(const visit_sequence& visits, std::int32_t slots) {
  benchmarks::flat_pager<Order> flat(visits.shape(), slots, flat_config_for<Order, P>(visits));
  pager<P> same({.layout = pool_layout::shared(visits.shape(), slots).value(),
                 .eviction = config_for<P>(visits)});
  auto plan = same.make_plan();
  for (std::size_t i = 0; i < visits.size(); ++i) {
    const auto view = visits[i];
    (void)flat.plan(view);
    flat.commit(view);
    if (same.plan(view, plan) != status::ok || same.commit(plan) != status::ok) return false;
  }
  return flat.hash() == same.decision_hash();
}
/// Visits of all misses by a hand-written order, with everything that a pager reports. It must decide as the pager
/// with that policy does, here and on traffic with hits.
template <class Order, class P>
void BM_AllMissFlatPager(benchmark::State& state) {
  static const bool alike = decides_alike<Order, P>(strangers(), 64) &&
                            decides_alike<Order, P>(traffic(false), 64) &&
                            decides_alike<Order, P>(traffic(false), 256);
  if (!alike) return state.SkipWithError("it decides otherwise than the pager");
  const auto& visits = strangers();
  const auto config = flat_config_for<Order, P>(visits);
  std::uint64_t hits = 0;
  for (auto _ : state) {
    state.PauseTiming();
    {
      benchmarks::flat_pager<Order> cache(visits.shape(), 64, config);
      state.ResumeTiming();
      for (std::size_t i = 0; i < visits.size(); ++i) {
        const auto view = visits[i];
        benchmark::DoNotOptimize(cache.plan(view).size());
        cache.commit(view);
      }
      state.PauseTiming();
      hits = cache.hits();
      benchmark::DoNotOptimize(cache.hash());
    }
    state.ResumeTiming();
  }
  report(state, hits, visits);
}

template <class Cache>
void BM_Floor(benchmark::State& state) {
  const auto& visits = traffic(state.range(1) != 0);
  std::uint64_t hits = 0;
  for (auto _ : state) {
    Cache cache(visits.shape().layers, visits.shape().experts,
                static_cast<std::int32_t>(state.range(0)));
    for (std::size_t i = 0; i < visits.size(); ++i)
      cache.visit(visits.at(i).layer, visits[i].experts);
    hits = cache.hits();
  }
  // Two caches that claim the same policy must agree.
  pager<lru> same({.layout = pool_layout::per_layer(visits.shape(), state.range(0)).value()});
  auto plan = same.make_plan();
  for (std::size_t i = 0; i < visits.size(); ++i)
    if (same.plan(visits[i], plan) != status::ok || same.commit(plan) != status::ok)
      state.SkipWithError("visit failed");
  if (same.stats().hits != hits) state.SkipWithError("the floor and pager<lru> disagree on hits");
  report(state, hits, visits);
}

void sizes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"slots", "hit_heavy"})
      ->ArgsProduct({{16, 32, 64}, {1, 0}})
      ->Unit(benchmark::kMillisecond);
}

void shared_sizes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"slots", "hit_heavy"})
      ->ArgsProduct({{768, 3072}, {1, 0}})
      ->Unit(benchmark::kMillisecond);
}

BENCHMARK(BM_Floor<benchmarks::flat_lru>)->Apply(sizes);
BENCHMARK(BM_Floor<benchmarks::list_lru>)->Apply(sizes);
BENCHMARK(BM_Visit<lru>)->Apply(sizes);
BENCHMARK(BM_Visit<any_eviction_policy>)->Apply(sizes);
BENCHMARK(BM_Visit<fifo>)->Apply(sizes);
BENCHMARK(BM_Visit<furthest_layer>)->Apply(sizes);
BENCHMARK(BM_Visit<least_stale>)->Apply(sizes);
BENCHMARK(BM_Visit<lfu>)->Apply(sizes);
BENCHMARK(BM_Visit<lfru>)->Apply(sizes);
BENCHMARK(BM_Visit<gate_score>)->Apply(sizes);
BENCHMARK(BM_Visit<popularity>)->Apply(sizes);
BENCHMARK(BM_Visit<belady>)->Apply(sizes);
BENCHMARK(BM_Visit<protect_hot<lru>>)->Apply(sizes);
BENCHMARK(BM_Visit<two_rate>)->Apply(sizes);
BENCHMARK(BM_Visit<similar_steps>)->Apply(sizes);
BENCHMARK(BM_Visit<importance>)->Apply(sizes);
BENCHMARK(BM_Visit<expert_map_priority>)->Apply(sizes);
BENCHMARK(BM_Visit<activation_ratio>)->Apply(sizes);
BENCHMARK(BM_AdmittedVisit<lru>)->Apply(sizes);
BENCHMARK(BM_AdmittedVisit<lfu>)->Apply(sizes);

BENCHMARK(BM_SharedVisit<lru>)->Apply(shared_sizes);
BENCHMARK(BM_SharedVisit<any_eviction_policy>)->Apply(shared_sizes);
BENCHMARK(BM_SharedVisit<fifo>)->Apply(shared_sizes);
BENCHMARK(BM_SharedVisit<furthest_layer>)->Apply(shared_sizes);
BENCHMARK(BM_SharedVisit<least_stale>)->Apply(shared_sizes);
BENCHMARK(BM_SharedVisit<lfu>)->Apply(shared_sizes);
BENCHMARK(BM_SharedVisit<lfru>)->Apply(shared_sizes);
BENCHMARK(BM_SharedVisit<gate_score>)->Apply(shared_sizes);
BENCHMARK(BM_SharedVisit<popularity>)->Apply(shared_sizes);
BENCHMARK(BM_SharedVisit<belady>)->Apply(shared_sizes);
BENCHMARK(BM_SharedVisit<protect_hot<lru>>)->Apply(shared_sizes);
BENCHMARK(BM_SharedVisit<two_rate>)->Apply(shared_sizes);
BENCHMARK(BM_SharedVisit<similar_steps>)->Apply(shared_sizes);
BENCHMARK(BM_SharedVisit<importance>)->Apply(shared_sizes);
BENCHMARK(BM_SharedVisit<expert_map_priority>)->Apply(shared_sizes);
BENCHMARK(BM_SharedVisit<activation_ratio>)->Apply(shared_sizes);

BENCHMARK(BM_AllMissFloor<benchmarks::dense_lru>);
BENCHMARK(BM_AllMissFloor<benchmarks::dense_fifo>);
BENCHMARK(BM_AllMissFlatPager<orders::lru, lru>);
BENCHMARK(BM_AllMissFlatPager<orders::fifo, fifo>);
BENCHMARK(BM_AllMissFlatPager<orders::furthest_layer, furthest_layer>);
BENCHMARK(BM_AllMissFlatPager<orders::least_stale, least_stale>);
BENCHMARK(BM_AllMissFlatPager<orders::lfu, lfu>);
BENCHMARK(BM_AllMissFlatPager<orders::lfru, lfru>);
BENCHMARK(BM_AllMissFlatPager<orders::gate_score, gate_score>);
BENCHMARK(BM_AllMissFlatPager<orders::popularity, popularity>);
BENCHMARK(BM_AllMissFlatPager<orders::belady, belady>);
BENCHMARK(BM_AllMissFlatPager<orders::protect_hot_lru, protect_hot<lru>>);
BENCHMARK(BM_AllMissFlatPager<orders::two_rate, two_rate>);
BENCHMARK(BM_AllMissFlatPager<orders::similar_steps, similar_steps>);
BENCHMARK(BM_AllMissFlatPager<orders::importance, importance>);
BENCHMARK(BM_AllMissFlatPager<orders::expert_map_priority, expert_map_priority>);
BENCHMARK(BM_AllMissFlatPager<orders::activation_ratio, activation_ratio>);
BENCHMARK(BM_AllMiss<lru>);
BENCHMARK(BM_AllMiss<any_eviction_policy>);
BENCHMARK(BM_AllMiss<fifo>);
BENCHMARK(BM_AllMiss<furthest_layer>);
BENCHMARK(BM_AllMiss<least_stale>);
BENCHMARK(BM_AllMiss<lfu>);
BENCHMARK(BM_AllMiss<lfru>);
BENCHMARK(BM_AllMiss<gate_score>);
BENCHMARK(BM_AllMiss<popularity>);
BENCHMARK(BM_AllMiss<belady>);
BENCHMARK(BM_AllMiss<protect_hot<lru>>);
BENCHMARK(BM_AllMiss<two_rate>);
BENCHMARK(BM_AllMiss<similar_steps>);
BENCHMARK(BM_AllMiss<importance>);
BENCHMARK(BM_AllMiss<expert_map_priority>);
BENCHMARK(BM_AllMiss<activation_ratio>);

}  // namespace

BENCHMARK_MAIN();
