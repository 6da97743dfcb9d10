// SPDX-License-Identifier: Apache-2.0
/// Replay throughput of every policy on a synthetic trace of 48 layers x 128 experts, top-8, compared with two
/// floors.

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include <benchmark/benchmark.h>

#include "hotset/trace/visit_sequence.hpp"
#include "lab/replay/cache_size.hpp"
#include "lab/replay/registry.hpp"
#include "lab/replay/replay.hpp"
#include "lab/traces/expert_counts.hpp"
#include "lab/traces/synthetic/synthetic.hpp"
#include "support/flat_caches.hpp"
#include "support/flat_orders.hpp"
#include "support/flat_pager.hpp"

namespace {

using namespace hotset;
namespace orders = benchmarks::orders;

/// Qwen3-30B's shape, skewed popularity; `sticky` percent of the experts are repeated from token to token. 40 percent
/// is the longer trace that benchmarks/peers uses, too: half of its accesses miss with slots for an eighth of the
/// experts.
struct traffic {
  routing_trace trace;
  visit_sequence visits;
  lab::event_order events;

  explicit traffic(int sticky)
      : trace(synthetic_trace({.layers = 48,
                               .experts = 128,
                               .top_k = 8,
                               .tokens = sticky == 40 ? 20000U : 2000U,
                               .zipf = 0.8,
                               .stickiness = sticky / 100.0,
                               .seed = sticky == 40 ? 42U : 7U})
                  .value()),
        visits(trace),
        events(
            lab::order_events(visits, pool_layout::shared(visits.shape(), 6144).value(), false)) {}

  static const traffic& of(int sticky) {
    static std::map<int, traffic> made;
    return made.try_emplace(sticky, sticky).first->second;
  }
};

void count(benchmark::State& state, const pager_stats& stats) {
  state.SetItemsProcessed(static_cast<std::int64_t>(stats.accesses) *
                          static_cast<std::int64_t>(state.iterations()));
  state.counters["hit_rate"] =
      static_cast<double>(stats.hits) / static_cast<double>(stats.accesses);
}

void BM_Replay(benchmark::State& state, int sticky, const std::string& eviction, cache_scope scope,
               const std::string& slots) {
  const auto& [trace, visits, events] = traffic::of(sticky);
  const auto layout =
      lab::make_cache_size(visits.shape(), scope, lab::size_request::parse_slots(slots)).layout;
  const bool alone = lab::read_policies({.eviction = eviction}).stands_alone();
  policy_knowledge knowledge;
  knowledge.future = events.future;
  knowledge.profile = {lab::count_uses(trace).uses, "the replayed trace"};
  pager_stats stats;
  for (auto _ : state) {
    state.PauseTiming();
    std::optional<erased_pager> pager;
    std::optional<lab::belady_bypass> bound;
    if (alone)
      bound.emplace(layout, belady::config{knowledge.future, {}});
    else
      pager.emplace(lab::make_pager({eviction, "always", layout}, knowledge));
    state.ResumeTiming();
    if (alone)
      lab::replay(visits, *bound);
    else
      lab::replay(visits, {}, *pager);
    state.PauseTiming();
    stats = alone ? bound->stats() : pager->stats();
    pager.reset();
    bound.reset();
    state.ResumeTiming();
  }
  count(state, stats);
}

/// A flat array of stamps and a scan: a careful engine's hand-written cache for one layer.
void BM_ReplayFloor(benchmark::State& state, int sticky, std::int32_t slots) {
  const auto& visits = traffic::of(sticky).visits;
  std::uint64_t hits = 0;
  for (auto _ : state) {
    benchmarks::flat_lru cache(48, 128, slots);
    for (std::size_t i = 0; i < visits.size(); ++i)
      cache.visit(visits.at(i).layer, visits[i].experts);
    hits = cache.hits();
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(visits.accesses()) *
                          static_cast<std::int64_t>(state.iterations()));
  state.counters["hit_rate"] = static_cast<double>(hits) / static_cast<double>(visits.accesses());
}

/// A hand-written shared pool: bare, and with everything that a pager reports.
template <class Cache>
void BM_SharedFloor(benchmark::State& state, std::int32_t slots) {
  const auto& visits = traffic::of(40).visits;
  std::uint64_t hits = 0;
  for (auto _ : state) {
    Cache cache(48, 128, slots);
    for (std::size_t i = 0; i < visits.size(); ++i) {
      const auto view = visits[i];
      if constexpr (requires { cache.plan(view); }) {
        benchmark::DoNotOptimize(cache.plan(view).size());
        cache.commit(view);
      } else {
        benchmark::DoNotOptimize(cache.visit(view.layer, view.experts).size());
      }
    }
    hits = cache.hits();
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(visits.accesses()) *
                          static_cast<std::int64_t>(state.iterations()));
  state.counters["hit_rate"] = static_cast<double>(hits) / static_cast<double>(visits.accesses());
}
template <class Cache>
void add_floor(const std::string& name, std::int32_t slots) {
  benchmark::RegisterBenchmark(
      ("BM_Replay/" + name + "/shared/slots:" + std::to_string(slots) + "/sticky:40").c_str(),
      BM_SharedFloor<Cache>, slots)
      ->Unit(benchmark::kMillisecond);
}

void add(int sticky, const std::string& eviction, cache_scope scope, const std::string& slots) {
  if (eviction == "lhu") return;  // it needs several precisions
  const auto name = "BM_Replay/" + eviction +
                    (scope == cache_scope::shared ? "/shared" : "/per-layer") + "/slots:" + slots +
                    "/sticky:" + std::to_string(sticky);
  benchmark::RegisterBenchmark(name.c_str(), BM_Replay, sticky, eviction, scope, slots)
      ->Unit(benchmark::kMillisecond);
}

void register_all() {
  for (const int sticky : {95, 50}) {
    for (const auto slots : {16, 32, 64})
      benchmark::RegisterBenchmark(("BM_Replay/flat_array_lru/per-layer/slots:" +
                                    std::to_string(slots) + "/sticky:" + std::to_string(sticky))
                                       .c_str(),
                                   BM_ReplayFloor, sticky, slots)
          ->Unit(benchmark::kMillisecond);
    for (const auto* slots : {"16", "32", "64"})
      for (const auto& eviction : lab::known_policies().eviction.names())
        add(sticky, eviction, cache_scope::per_layer, slots);
    for (const auto* slots : {"12.5%", "25%", "50%"})
      for (const auto& eviction : lab::known_policies().eviction.names())
        add(sticky, eviction, cache_scope::shared, slots);
  }
  for (const auto slots : {768, 3072}) {
    add_floor<benchmarks::dense_lru>("dense_lru", slots);
    add_floor<benchmarks::flat_pager_lru>("flat_pager_lru", slots);
    add_floor<benchmarks::dense_fifo>("dense_fifo", slots);
    add_floor<benchmarks::flat_pager_fifo>("flat_pager_fifo", slots);
    // Orders kept in lists; those that copy or scan all slots at every visit suit only small pools.
    add_floor<benchmarks::flat_pager<orders::furthest_layer>>("flat_pager_furthest_layer", slots);
    add_floor<benchmarks::flat_pager<orders::least_stale>>("flat_pager_least_stale", slots);
    add_floor<benchmarks::flat_pager<orders::lfu>>("flat_pager_lfu", slots);
  }
  auto beside_peers = lab::known_policies().eviction.names();
  beside_peers.emplace_back("lfu:history=resident");  // the same rule as libCacheSim's LFU
  for (const auto& eviction : beside_peers) {
    for (const auto* slots : {"768", "3072"}) add(40, eviction, cache_scope::shared, slots);
    for (const auto* slots : {"16", "64"}) add(40, eviction, cache_scope::per_layer, slots);
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  register_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
