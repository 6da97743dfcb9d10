// SPDX-License-Identifier: Apache-2.0
// Placing a layer again: 256 experts in 320 slots of 64 ranks, by the next 64 steps, from where they are.
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "hotset/placement/place_by_steps.hpp"
#include "made_loads.hpp"

namespace {

using namespace hotset;

/// Argument: the move cost. Counter: experts that move each time.
void place_again(benchmark::State& state) {
  const auto shape = placement_shape::of(256, 64, 64).value();
  std::vector<step_loads> windows;
  for (std::uint64_t seed = 1; seed <= 16; ++seed)
    windows.push_back(hotset_test::made_loads(256, 64, seed, 1, 17));
  auto placed = place_by_steps(shape, windows.back()).value();
  const auto move_cost = static_cast<std::uint32_t>(state.range(0));
  std::size_t next = 0;
  std::int64_t moved = 0;
  for ([[maybe_unused]] auto _ : state) {
    auto now = place_by_steps(shape, windows[next++ % windows.size()],
                              {.start = placed, .move_cost = move_cost})
                   .value();
    moved += moved_experts(shape, placed, now);
    placed = std::move(now);
  }
  state.counters["moved"] =
      benchmark::Counter(static_cast<double>(moved), benchmark::Counter::kAvgIterations);
}
BENCHMARK(place_again)->Arg(1000)->Arg(1500)->Arg(2000)->Arg(3000)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
