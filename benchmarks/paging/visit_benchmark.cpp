// SPDX-License-Identifier: Apache-2.0
/// One visit, plan and commit, for every policy: top-8 of 128 experts, beside hand-written LRU caches as floors.

#include <cstdint>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "hotset/eviction/any_eviction_policy.hpp"
#include "hotset/eviction/belady.hpp"
#include "hotset/eviction/fifo.hpp"
#include "hotset/eviction/furthest_layer.hpp"
#include "hotset/eviction/gate_score.hpp"
#include "hotset/eviction/least_stale.hpp"
#include "hotset/eviction/lfru.hpp"
#include "hotset/eviction/lfu.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/eviction/popularity.hpp"
#include "hotset/eviction/protect_hot.hpp"
#include "hotset/paging/pager.hpp"
#include "hotset/trace/future_uses.hpp"
#include "hotset/trace/synthetic/synthetic.hpp"
#include "hotset/trace/visit_sequence.hpp"
#include "support/flat_caches.hpp"

namespace {

using namespace hotset;

/// Two kinds of traffic through 8 layers: `hit_heavy` repeats 95 % of its experts from token to token, `miss_heavy` 30 %.
const visit_sequence& traffic(bool hit_heavy) {
  const auto make = [](double stickiness) {
    return visit_sequence(synthetic_trace({.layers = 8,
                                           .experts = 128,
                                           .top_k = 8,
                                           .tokens = 4000,
                                           .zipf = 0.8,
                                           .stickiness = stickiness,
                                           .seed = 11})
                              .value());
  };
  static const visit_sequence hits = make(0.95);
  static const visit_sequence misses = make(0.3);
  return hit_heavy ? hits : misses;
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

/// One iteration replays all visits; the counter `visit` is the time of one.
template <class P>
void BM_Visit(benchmark::State& state) {
  const auto& visits = traffic(state.range(1) != 0);
  const auto layout = pool_layout::per_layer(visits.shape(), state.range(0)).value();
  const auto config = config_for<P>(visits);
  std::uint64_t hits = 0;
  for (auto _ : state) {
    state.PauseTiming();
    pager<P> cache({.layout = layout, .eviction = config});
    auto plan = cache.make_plan();
    state.ResumeTiming();
    for (std::size_t i = 0; i < visits.size(); ++i)
      if (cache.plan(visits[i], plan) != status::ok || cache.commit(plan) != status::ok)
        state.SkipWithError("visit failed");
    state.PauseTiming();
    hits = cache.stats().hits;
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

}  // namespace

BENCHMARK_MAIN();
