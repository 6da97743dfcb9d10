// SPDX-License-Identifier: Apache-2.0
/// Memory of a pager and of its plan: 48 layers of 128 experts, top-8, with one pool for all layers or one per layer.

#include <cstddef>
#include <cstdint>

#include <benchmark/benchmark.h>
#include <malloc.h>

#include "hotset/eviction/importance.hpp"
#include "hotset/eviction/least_stale.hpp"
#include "hotset/eviction/lfru.hpp"
#include "hotset/eviction/lfu.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/eviction/similar_steps.hpp"
#include "hotset/eviction/two_rate.hpp"
#include "hotset/paging/pager.hpp"

namespace {

using namespace hotset;

std::size_t heap_bytes() {
  const auto now = mallinfo2();
  return now.uordblks + now.hblkhd;
}

/// Reports the KiB on the heap; the time is that of the construction.
template <class P>
void BM_Memory(benchmark::State& state) {
  const geometry shape{.layers = 48, .experts = 128, .top_k = 8};
  const auto slots = static_cast<std::int32_t>(state.range(0));
  const auto layout = state.range(1) != 0 ? pool_layout::shared(shape, slots).value()
                                          : pool_layout::per_layer(shape, slots / 48).value();
  std::size_t taken = 0;
  for (auto _ : state) {
    const auto before = heap_bytes();
    pager<P> cache({.layout = layout});
    const auto plan = cache.make_plan();
    taken = heap_bytes() - before;
  }
  state.counters["KiB"] = static_cast<double>(taken) / 1024;
}

void sizes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"slots", "shared"})->ArgsProduct({{768, 3072}, {1, 0}});
}

BENCHMARK(BM_Memory<lru>)->Apply(sizes);
BENCHMARK(BM_Memory<least_stale>)->Apply(sizes);
BENCHMARK(BM_Memory<lfu>)->Apply(sizes);
BENCHMARK(BM_Memory<lfru>)->Apply(sizes);
BENCHMARK(BM_Memory<importance>)->Apply(sizes);
BENCHMARK(BM_Memory<two_rate>)->Apply(sizes);
BENCHMARK(BM_Memory<similar_steps>)->Apply(sizes);

}  // namespace

BENCHMARK_MAIN();
