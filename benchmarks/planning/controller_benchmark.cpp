// SPDX-License-Identifier: Apache-2.0
/// What the controllers of a live split cost: at the end of a burst, at a drained point, and for each access.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "hotset/eviction/lru.hpp"
#include "hotset/paging/pager.hpp"
#include "hotset/planning/control/dual_resize.hpp"
#include "hotset/planning/control/marginal_value.hpp"
#include "hotset/planning/control/regret.hpp"
#include "hotset/trace/visit_sequence.hpp"
#include "lab/traces/synthetic/synthetic.hpp"

namespace {

using namespace hotset;

/// 64 layers of 256 experts of 9 MiB beside blocks of 2 MiB: 96 GiB.
constexpr split_limits limits{.budget_bytes = std::uint64_t{96} << 30U,
                              .slot_bytes = std::uint64_t{64} * (9U << 20U),
                              .block_bytes = 2U << 20U,
                              .min_cap = 8,
                              .max_cap = 256,
                              .min_blocks = 512};
constexpr std::size_t distances = 4096;  ///< of a burst, of each kind

std::vector<std::uint32_t> skewed(std::uint64_t most, std::uint64_t seed) {
  splitmix64 random(seed);
  std::vector<std::uint32_t> out(distances);
  for (auto& d : out)
    d = static_cast<std::uint32_t>(random.uniform() * random.uniform() * static_cast<double>(most));
  return out;
}

marginal_value controller_of(std::int64_t kv_bin) {
  return marginal_value({.limits = limits,
                         .seconds_per_expert_miss = 4e-4,
                         .seconds_per_kv_miss = 2e-4,
                         .grid = 64,
                         .kv_bin = static_cast<std::uint64_t>(kv_bin)});
}

/// Bins of both histograms.
std::size_t bins_of(std::int64_t kv_bin) {
  const auto blocks = limits.blocks_beside(limits.min_cap);
  const auto width = static_cast<std::uint64_t>(kv_bin);
  return static_cast<std::size_t>(limits.max_cap + (blocks + width - 1) / width);
}

/// The cap is the smallest each time.
void BM_EndBurst(benchmark::State& state) {
  auto controller = controller_of(state.range(0));
  const auto experts = skewed(limits.max_cap, 1);
  const auto blocks = skewed(limits.blocks_beside(limits.min_cap), 2);
  for (const auto d : experts) controller.on_expert(d);
  for (const auto d : blocks) controller.on_block(d);
  std::size_t n = 0;
  std::uint64_t caps = 0;
  for (auto _ : state) {
    controller.on_expert(experts[n % distances]);
    controller.on_block(blocks[n % distances]);
    caps += controller.end_burst(limits.min_cap).cap;
    ++n;
  }
  benchmark::DoNotOptimize(caps);
  state.counters["bins"] = static_cast<double>(bins_of(state.range(0)));
}
BENCHMARK(BM_EndBurst)->ArgName("kv_bin")->Arg(1)->Arg(16)->Arg(256);

/// The floor of a burst's end: new counts are added to as many decayed ones and cleared, and nothing is asked of them.
void BM_EndBurst_pass(benchmark::State& state) {
  std::vector<double> fresh(bins_of(state.range(0)), 1.0);
  std::vector<double> decayed(fresh.size(), 1.0);
  for (auto _ : state) {
    for (std::size_t b = 0; b < fresh.size(); ++b) {
      decayed[b] = 0.8 * decayed[b] + fresh[b];
      fresh[b] = 0;
    }
    benchmark::DoNotOptimize(decayed.data());
    benchmark::ClobberMemory();
  }
  state.counters["bins"] = static_cast<double>(fresh.size());
}
BENCHMARK(BM_EndBurst_pass)->ArgName("kv_bin")->Arg(1)->Arg(16)->Arg(256);

/// Items are distances, half of experts, half of blocks.
void BM_Distance(benchmark::State& state) {
  auto controller = controller_of(state.range(0));
  const auto experts = skewed(limits.max_cap, 1);
  const auto blocks = skewed(limits.blocks_beside(limits.min_cap), 2);
  for (auto _ : state) {
    for (std::size_t i = 0; i < distances; ++i) {
      controller.on_expert(experts[i]);
      controller.on_block(blocks[i]);
    }
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(2 * distances) * state.iterations());
}
BENCHMARK(BM_Distance)->ArgName("kv_bin")->Arg(1)->Arg(16);

/// The same counts in two plain arrays.
void BM_Distance_arrays(benchmark::State& state) {
  std::vector<std::uint64_t> of_experts(limits.max_cap + 1);
  std::vector<std::uint64_t> of_blocks(limits.blocks_beside(limits.min_cap) + 1);
  const auto experts = skewed(limits.max_cap, 1);
  const auto blocks = skewed(limits.blocks_beside(limits.min_cap), 2);
  for (auto _ : state) {
    for (std::size_t i = 0; i < distances; ++i) {
      ++of_experts[experts[i]];
      ++of_blocks[blocks[i]];
    }
    benchmark::DoNotOptimize(of_blocks.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(2 * distances) * state.iterations());
}
BENCHMARK(BM_Distance_arrays);

void BM_DualResize(benchmark::State& state) {
  const dual_resize controller({.limits = limits});
  const auto peaks = skewed(limits.blocks_beside(limits.min_cap), 3);
  pool_sizes now{64, 1024};
  std::size_t n = 0;
  for (auto _ : state) {
    now = controller.next(now, peaks[n++ % distances]);
    benchmark::DoNotOptimize(now);
  }
}
BENCHMARK(BM_DualResize);

const visit_sequence& traffic() {
  static const visit_sequence visits(synthetic_trace({.layers = 48,
                                                      .experts = 256,
                                                      .top_k = 8,
                                                      .tokens = 1000,
                                                      .zipf = 0.9,
                                                      .stickiness = 0.3,
                                                      .seed = 12})
                                         .value());
  return visits;
}

/// Items are accesses. One iteration is the whole of the traffic in windows.
void BM_Regret_observe(benchmark::State& state) {
  const auto& visits = traffic();
  regret judge(pool_layout::per_layer(visits.shape(), 64).value(), {.visits = 4096});
  judge.begin_window({}, 0);
  for (auto _ : state) {
    for (std::size_t i = 0; i < visits.size(); ++i) {
      if (judge.is_full()) {
        state.PauseTiming();  // BM_Regret_begin
        judge.begin_window({}, 0);
        state.ResumeTiming();
      }
      if (!judge.observe(visits[i])) state.SkipWithError("a visit was left out");
    }
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(visits.accesses()) * state.iterations());
}
BENCHMARK(BM_Regret_observe);

/// The floor of observing: ids are copied behind one another, and not looked at.
void BM_Regret_copy(benchmark::State& state) {
  const auto& visits = traffic();
  std::vector<expert_id> ids;
  std::size_t kept = 0;
  for (auto _ : state) {
    for (std::size_t i = 0; i < visits.size(); ++i) {
      if (kept++ % 4096 == 0) ids.clear();
      const auto view = visits[i].experts;
      ids.insert(ids.end(), view.begin(), view.end());
    }
    benchmark::DoNotOptimize(ids.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(visits.accesses()) * state.iterations());
}
BENCHMARK(BM_Regret_copy);

/// A window begins after one of 4,096 visits, which the rates learn.
void BM_Regret_begin(benchmark::State& state) {
  const auto& visits = traffic();
  constexpr std::size_t window = 4096;
  regret judge(pool_layout::per_layer(visits.shape(), 64).value(), {.visits = window});
  std::uint64_t accesses = 0;
  for (auto _ : state) {
    state.PauseTiming();
    for (std::size_t i = 0; i < window; ++i) {
      (void)judge.observe(visits[i]);
      accesses += visits[i].experts.size();
    }
    state.ResumeTiming();
    judge.begin_window({}, 0);
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(accesses));
}
BENCHMARK(BM_Regret_begin)->Unit(benchmark::kMicrosecond);

/// The end of a window of 4,096 visits: who is resident comes from a cache that has served what was before.
void BM_Regret_end(benchmark::State& state) {
  const auto& visits = traffic();
  const auto layout = pool_layout::per_layer(visits.shape(), 64).value();
  constexpr std::size_t window = 4096;
  pager<lru> cache({.layout = layout});
  auto plan = cache.make_plan();
  regret judge(layout, {.visits = window});
  std::uint64_t accesses = 0;
  for (std::size_t i = 0; i < 2 * window; ++i) {
    if (i == window) judge.begin_window(cache.residents(), cache.stats().fills);
    if (cache.plan(visits[i], plan) != status::ok || cache.commit(plan) != status::ok)
      return state.SkipWithError("visit failed");
    if (i < window) continue;
    (void)judge.observe(visits[i]);
    accesses += visits[i].experts.size();
  }
  regret::outcome found;
  for (auto _ : state) {
    const auto outcome = judge.end_window(cache.stats().fills);
    if (!outcome) return state.SkipWithError("no outcome");
    found = *outcome;
  }
  state.counters["regret"] = found.ratio();
  state.counters["beyond the oracle"] =
      static_cast<double>(found.ours()) / static_cast<double>(found.fills);
  state.SetItemsProcessed(static_cast<std::int64_t>(accesses) * state.iterations());
}
BENCHMARK(BM_Regret_end)->Unit(benchmark::kMicrosecond);

/// The same window through the cache that is judged.
void BM_Regret_served(benchmark::State& state) {
  const auto& visits = traffic();
  constexpr std::size_t window = 4096;
  pager<lru> cache({.layout = pool_layout::per_layer(visits.shape(), 64).value()});
  auto plan = cache.make_plan();
  std::uint64_t accesses = 0;
  for (auto _ : state) {
    for (std::size_t i = window; i < 2 * window; ++i) {
      if (cache.plan(visits[i], plan) != status::ok || cache.commit(plan) != status::ok)
        state.SkipWithError("visit failed");
      accesses += visits[i].experts.size();
    }
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(accesses));
}
BENCHMARK(BM_Regret_served)->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
