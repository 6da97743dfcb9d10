// SPDX-License-Identifier: Apache-2.0
/// Replay throughput of every policy on a synthetic trace of 48 layers x 128 experts, top-8, beside two floors.

#include <cstdint>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "hotset/sim/cache_size.hpp"
#include "hotset/sim/registry.hpp"
#include "hotset/sim/replay.hpp"
#include "hotset/sim/sweep.hpp"
#include "hotset/trace/synthetic.hpp"
#include "hotset/trace/visit_sequence.hpp"
#include "support/flat_caches.hpp"

namespace {

using namespace hotset;

/// Qwen3-30B's shape: skewed popularity, half of the experts repeated from token to token.
const routing_trace& trace() {
  static const routing_trace made = synthetic_trace({.layers = 48,
                                                     .experts = 128,
                                                     .top_k = 8,
                                                     .tokens = 2000,
                                                     .zipf = 0.8,
                                                     .stickiness = 0.5,
                                                     .seed = 7})
                                        .value();
  return made;
}
const visit_sequence& visits() {
  static const visit_sequence made(trace());
  return made;
}

void count(benchmark::State& state, const pager_stats& stats) {
  state.SetItemsProcessed(static_cast<std::int64_t>(stats.accesses) *
                          static_cast<std::int64_t>(state.iterations()));
  state.counters["hit_rate"] =
      static_cast<double>(stats.hits) / static_cast<double>(stats.accesses);
}

void BM_Replay(benchmark::State& state, const std::string& eviction, cache_scope scope,
               const std::string& slots) {
  const auto size =
      sim::make_cache_size(visits().shape(), scope, sim::size_request::parse_slots(slots),
                           sim::replay_mode::event_atomic, false);
  sim::policy_knowledge knowledge;
  static const auto events = sim::order_events(visits(), size.layout, false);
  knowledge.future = events.future;
  knowledge.profile = {sim::count_uses(trace(), 0), "the replayed trace"};
  pager_stats stats;
  for (auto _ : state) {
    state.PauseTiming();
    auto pager = sim::make_pager({eviction, "always", size.layout}, knowledge);
    state.ResumeTiming();
    sim::replay(visits(), {}, *pager, size.layout);
    state.PauseTiming();
    stats = pager->stats();
    pager.reset();
    state.ResumeTiming();
  }
  count(state, stats);
}

/// A flat array of stamps and a scan: what a careful engine would write by hand for one layer's cache.
void BM_ReplayFloor(benchmark::State& state, std::int32_t slots) {
  std::uint64_t hits = 0;
  for (auto _ : state) {
    benchmarks::flat_lru cache(48, 128, slots);
    for (std::size_t i = 0; i < visits().size(); ++i)
      cache.visit(visits().at(i).layer, visits()[i].experts);
    hits = cache.hits();
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(visits().accesses()) *
                          static_cast<std::int64_t>(state.iterations()));
  state.counters["hit_rate"] = static_cast<double>(hits) / static_cast<double>(visits().accesses());
}

void register_all() {
  for (const auto slots : {16, 32, 64})
    benchmark::RegisterBenchmark(
        ("BM_Replay/flat_array_lru/per-layer/slots:" + std::to_string(slots)).c_str(),
        BM_ReplayFloor, slots)
        ->Unit(benchmark::kMillisecond);
  for (const auto* slots : {"16", "32", "64"})
    for (const auto& eviction : sim::eviction_names())
      benchmark::RegisterBenchmark(("BM_Replay/" + eviction + "/per-layer/slots:" + slots).c_str(),
                                   BM_Replay, eviction, cache_scope::per_layer, slots)
          ->Unit(benchmark::kMillisecond);
  for (const auto* slots : {"12.5%", "25%", "50%"})
    for (const auto& eviction : sim::eviction_names())
      benchmark::RegisterBenchmark(("BM_Replay/" + eviction + "/shared/slots:" + slots).c_str(),
                                   BM_Replay, eviction, cache_scope::shared, slots)
          ->Unit(benchmark::kMillisecond);
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
