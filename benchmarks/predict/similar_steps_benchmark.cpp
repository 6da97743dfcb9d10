// SPDX-License-Identifier: Apache-2.0
/// A visit under `similar_steps` and `two_rate`, compared with `lru`, top-8 of 128 experts in 48 layers, and the time
/// of its parts.

#include <cstddef>
#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include "hotset/admission/least_valuable.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/eviction/similar_steps.hpp"
#include "hotset/eviction/two_rate.hpp"
#include "hotset/paging/pager.hpp"
#include "hotset/predict/history/next_use_values.hpp"
#include "hotset/trace/visit_sequence.hpp"
#include "lab/traces/synthetic/synthetic.hpp"

namespace {

using namespace hotset;

constexpr std::int32_t layers = 48;
constexpr std::int32_t experts = 128;

/// Long enough that a ring of 1,024 rows is full for half of the tokens.
const visit_sequence& traffic() {
  static const visit_sequence made(synthetic_trace({.layers = layers,
                                                    .experts = experts,
                                                    .top_k = 8,
                                                    .tokens = 2048,
                                                    .zipf = 0.8,
                                                    .stickiness = 0.5,
                                                    .seed = 11})
                                       .value());
  return made;
}

/// Shared pools are given as slots above `experts`, per-layer pools as slots of each layer.
pool_layout layout_of(std::int64_t slots) {
  const auto count = static_cast<std::int32_t>(slots);
  return slots > experts ? pool_layout::shared(traffic().shape(), count).value()
                         : pool_layout::per_layer(traffic().shape(), count).value();
}

/// One iteration replays the second half of the visits, after the first; the counter `visit` is the time of one.
template <class P, class A = always>
void BM_Visit(benchmark::State& state) {
  const auto& visits = traffic();
  const auto layout = layout_of(state.range(0));
  const auto half = visits.size() / 2;
  double hit_rate = 0;
  for (auto _ : state) {
    state.PauseTiming();
    pager<P, A> cache({.layout = layout});
    auto plan = cache.make_plan();
    const auto serve = [&](std::size_t i) {
      if (cache.plan(visits[i], plan) != status::ok || cache.commit(plan) != status::ok)
        state.SkipWithError("visit failed");
    };
    for (std::size_t i = 0; i < half; ++i) serve(i);
    const auto before = cache.stats();
    state.ResumeTiming();
    for (std::size_t i = half; i < visits.size(); ++i) serve(i);
    state.PauseTiming();
    const auto after = cache.stats();
    const auto hits = static_cast<double>(after.hits - before.hits);
    hit_rate = hits / (hits + static_cast<double>(after.misses - before.misses));
    state.ResumeTiming();
  }
  state.counters["hit_rate"] = hit_rate;
  state.counters["visit"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * static_cast<double>(half),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(BM_Visit<lru>)->Arg(128)->Arg(16)->Arg(32)->Arg(64)->Arg(768)->Arg(4096);
BENCHMARK(BM_Visit<two_rate>)->Arg(128)->Arg(16)->Arg(32)->Arg(64)->Arg(768)->Arg(4096);
BENCHMARK(BM_Visit<similar_steps>)->Arg(128)->Arg(16)->Arg(32)->Arg(64)->Arg(768)->Arg(4096);
BENCHMARK(BM_Visit<similar_steps, least_valuable>)->Arg(16)->Arg(768);

/// Work of a visit independent of its victims: staging and keeping it, without and with the values of its layer.
void BM_History(benchmark::State& state) {
  const auto& visits = traffic();
  next_use_values values(visits.shape(), {.history = routing_history::config{}});
  std::size_t i = 0;
  for (; i < visits.size() / 2; ++i) {
    values.stage(visits[i]);
    values.keep();
  }
  for (auto _ : state) {
    values.stage(visits[i]);
    if (state.range(0) != 0) benchmark::DoNotOptimize(values.values().data());
    values.keep();
    if (++i == visits.size()) i = visits.size() / 2;
  }
}
BENCHMARK(BM_History)->ArgName("values")->Arg(0)->Arg(1);

constexpr std::size_t rows = 1024;

/// Eight planes in which one row in sixteen is set.
struct planes {
  planes() {
    for (std::size_t p = 0; p < 8; ++p) of.push_back(bits.data() + p * (rows / 64));
    for (std::size_t w = 0; w < bits.size(); ++w) bits[w] = 0x0001000100010001ULL << (w % 16);
  }
  std::vector<std::uint64_t> bits = std::vector<std::uint64_t>(8 * rows / 64);
  std::vector<const std::uint64_t*> of;
};
/// The floor: only reads and writes the similarities.
template <bool Moves>
void BM_MoveOn(benchmark::State& state) {
  const planes of;
  std::vector<std::uint16_t> similar(rows, 1000);
  const auto level = state.range(0) != 0 ? best_vector_level() : vector_level::scalar;
  for (auto _ : state) {
    if constexpr (Moves) {
      history_kernels::move_on({.planes = of.of, .decay = 5461, .gain = 341}, similar, similar,
                               level);
    } else {
      for (auto& s : similar) s = static_cast<std::uint16_t>(s + 1);
    }
    benchmark::DoNotOptimize(similar.data());
    benchmark::ClobberMemory();
  }
}
BENCHMARK(BM_MoveOn<false>)->Arg(1);
BENCHMARK(BM_MoveOn<true>)->ArgName("vectors")->Arg(0)->Arg(1);

}  // namespace

BENCHMARK_MAIN();
