// SPDX-License-Identifier: Apache-2.0
/// Throughput of the simulator with a clock: the real slot cache over a link, with and without prefetch.

#include <cstdint>
#include <string>

#include <benchmark/benchmark.h>

#include "hotset/trace/visit_sequence.hpp"
#include "lab/replay/cache_size.hpp"
#include "lab/replay/registry.hpp"
#include "lab/replay/timed_replay.hpp"
#include "lab/traces/synthetic/synthetic.hpp"

namespace {

using namespace hotset;

/// 48 layers x 128 experts, top-8, most of the experts repeated from token to token.
struct traffic {
  routing_trace trace = synthetic_trace({.layers = 48,
                                         .experts = 128,
                                         .top_k = 8,
                                         .tokens = 1000,
                                         .zipf = 0.8,
                                         .stickiness = 0.95,
                                         .expert_bytes = 9'437'184,
                                         .seed = 7})
                            .value();
  visit_sequence visits{trace};

  static const traffic& instance() {
    static const traffic one;
    return one;
  }
};

void BM_TimedReplay(benchmark::State& state, const std::string& eviction,
                    const std::string& prefetch, const std::string& slots, bool instant) {
  const auto& [trace, visits] = traffic::instance();
  const auto size = lab::make_cache_size(visits.shape(), cache_scope::shared,
                                         lab::size_request::parse_slots(slots));
  const auto link = instant ? link_model::instant()
                            : link_model({.bytes_per_second = 25'000'000'000, .latency = 10'000});
  lab::replay_front front;
  front.prefetch = lab::read_policies({.prefetch = prefetch}).prefetcher;
  pager_request wanted;
  wanted.eviction = eviction;
  wanted.layout = size.layout;
  pager_stats stats;
  for (auto _ : state) {
    state.PauseTiming();
    auto engine = lab::make_engine(wanted, {}, {.link = link}, {.per_visit = 200'000});
    state.ResumeTiming();
    (void)lab::replay_timed(trace, visits, {}, *engine, front);
    state.PauseTiming();
    stats = engine->stats();
    engine.reset();
    state.ResumeTiming();
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(stats.accesses) *
                          static_cast<std::int64_t>(state.iterations()));
  state.counters["hit_rate"] =
      static_cast<double>(stats.hits) / static_cast<double>(stats.accesses);
}

void register_all() {
  for (const bool instant : {false, true})
    for (const auto* slots : {"12.5%", "50%"})
      for (const auto* eviction : {"lru", "least_stale"})
        for (const auto* prefetch :
             {"no_prefetch", "previous_step", "noisy_oracle:precision=0.9:recall=0.9"})
          benchmark::RegisterBenchmark(
              (std::string("BM_TimedReplay/") + eviction + "/" + prefetch + "/slots:" + slots +
               (instant ? "/link:instant" : "/link:25GB/s"))
                  .c_str(),
              BM_TimedReplay, eviction, prefetch, slots, instant)
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
