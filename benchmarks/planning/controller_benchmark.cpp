// SPDX-License-Identifier: Apache-2.0
/// Measures the controllers of a live split: at the end of a burst, at a drained point, and for each access.

#include <cstddef>
#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include "hotset/core/numbers/splitmix64.hpp"
#include "hotset/planning/control/dual_resize.hpp"
#include "hotset/planning/control/marginal_value.hpp"

namespace {

using namespace hotset;

/// 64 layers of 256 experts of 9 MiB, and blocks of 2 MiB: 96 GiB.
constexpr split_limits limits{.budget_bytes = std::uint64_t{96} << 30U,
                              .slot_bytes = std::uint64_t{64} * (9U << 20U),
                              .block_bytes = 2U << 20U,
                              .min_cap = 8,
                              .max_cap = 256,
                              .min_blocks = 512};
constexpr std::size_t distances = 4096;  ///< per burst and kind

std::vector<std::uint32_t> skewed(std::uint64_t most, std::uint64_t seed) {
  splitmix64 random(seed);
  std::vector<std::uint32_t> out(distances);
  for (auto& d : out)
    d = static_cast<std::uint32_t>(random.uniform() * random.uniform() * static_cast<double>(most));
  return out;
}

marginal_value make_controller() {
  return marginal_value::create({.limits = limits,
                                 .seconds_per_expert_miss = 4e-4,
                                 .seconds_per_kv_miss = 2e-4,
                                 .grid = 64})
      .value();
}

/// Distances that both histograms count by themselves.
std::size_t counted_distances() {
  return static_cast<std::size_t>(limits.max_cap + limits.blocks_beside(limits.min_cap));
}

/// Each iteration starts at the smallest cap.
void BM_EndBurst(benchmark::State& state) {
  auto control = make_controller();
  const auto experts = skewed(limits.max_cap, 1);
  const auto blocks = skewed(limits.blocks_beside(limits.min_cap), 2);
  for (const auto d : experts) control.on_expert(d);
  for (const auto d : blocks) control.on_block(d);
  std::size_t n = 0;
  std::uint64_t caps = 0;
  for (auto _ : state) {
    control.on_expert(experts[n % distances]);
    control.on_block(blocks[n % distances]);
    caps += control.end_burst(limits.min_cap).cap;
    ++n;
  }
  benchmark::DoNotOptimize(caps);
  state.counters["distances"] = static_cast<double>(counted_distances());
}
BENCHMARK(BM_EndBurst);

/// Floor of a burst's end: adds new counts to as many decayed ones and clears them, without evaluating anything.
void BM_EndBurst_pass(benchmark::State& state) {
  std::vector<double> fresh(counted_distances(), 1.0);
  std::vector<double> decayed(fresh.size(), 1.0);
  for (auto _ : state) {
    for (std::size_t b = 0; b < fresh.size(); ++b) {
      decayed[b] = 0.8 * decayed[b] + fresh[b];
      fresh[b] = 0;
    }
    benchmark::DoNotOptimize(decayed.data());
    benchmark::ClobberMemory();
  }
  state.counters["distances"] = static_cast<double>(fresh.size());
}
BENCHMARK(BM_EndBurst_pass);

/// Items are distances: half for experts, half for blocks.
void BM_Distance(benchmark::State& state) {
  auto control = make_controller();
  const auto experts = skewed(limits.max_cap, 1);
  const auto blocks = skewed(limits.blocks_beside(limits.min_cap), 2);
  for (auto _ : state) {
    for (std::size_t i = 0; i < distances; ++i) {
      control.on_expert(experts[i]);
      control.on_block(blocks[i]);
    }
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(2 * distances) * state.iterations());
}
BENCHMARK(BM_Distance);

/// Counts the same distances in two plain arrays: the floor.
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
  const auto controller = dual_resize::create({.limits = limits}).value();
  const auto peaks = skewed(limits.blocks_beside(limits.min_cap), 3);
  pool_sizes now{64, 1024};
  std::size_t n = 0;
  for (auto _ : state) {
    now = controller.next(now, peaks[n++ % distances]);
    benchmark::DoNotOptimize(now);
  }
}
BENCHMARK(BM_DualResize);

}  // namespace

BENCHMARK_MAIN();
