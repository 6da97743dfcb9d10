// SPDX-License-Identifier: Apache-2.0
/// Cost of the prefetch queue per visit, alone and within slot_cache over a link on a virtual clock.

#include <cstddef>
#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include "hotset/cache/slot_cache.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/transfer/prefetch_queue.hpp"
#include "lab/replay/clock_backend.hpp"
#include "lab/traces/synthetic/synthetic.hpp"

namespace {

using namespace hotset;

constexpr std::int32_t layers = 48;
constexpr std::int32_t experts = 128;

layer_id after(layer_id layer) { return layer_id{(number(layer) + 1) % layers}; }

/// Requests for the layer after each of a step's visits, `count` each.
std::vector<prefetch_request> requests_of(std::size_t count) {
  splitmix64 random(3);
  std::vector<prefetch_request> out;
  for (const auto l : each<layer_id>(layers))
    for (std::size_t n = 0; n < count; ++n)
      out.push_back({{l, static_cast<expert_id>(random.below(experts))}, 0});
  return out;
}

/// A visit adds its requests; half of them are issued, the rest waits until its visit comes.
void BM_FillQueue(benchmark::State& state) {
  const auto count = static_cast<std::size_t>(state.range(0));
  const auto requests = requests_of(count);
  prefetch_queue queue;
  std::vector<std::uint32_t> kept;
  std::uint64_t visit = 0;
  for (auto _ : state) {
    const auto layer = static_cast<layer_id>(visit % layers);
    const auto step = visit / layers;
    queue.expire(step, layer);
    for (std::size_t n = 0; n < count; ++n) {
      auto request = requests[index_of(layer) * count + n];
      request.for_step = layer + 1 == layers ? step + 1 : step;
      request.key.layer = after(layer);
      queue.add(request);
    }
    kept.clear();
    for (std::size_t n = queue.size() / 2; n < queue.size(); ++n)
      kept.push_back(static_cast<std::uint32_t>(n));
    queue.take(0, queue.size(), kept);
    benchmark::DoNotOptimize(queue.size());
    ++visit;
  }
  state.counters["waiting"] = static_cast<double>(queue.size());
}
BENCHMARK(BM_FillQueue)->ArgName("requests")->Arg(8)->Arg(16)->Arg(64);

/// resolve, prefetch, release: requests for the next layer's experts, most of which are resident.
void BM_PrefetchingVisit(benchmark::State& state) {
  const auto count = static_cast<std::size_t>(state.range(0));
  const geometry shape{.layers = layers,
                       .experts = experts,
                       .top_k = 8,
                       .max_tokens_per_visit = 1,
                       .expert_bytes = {9'437'184}};
  clock_backend backend({.link = link_model({.bytes_per_second = 25'000'000'000}), .shape = shape});
  clock_stream stream;
  slot_cache cache(pager<lru>({.layout = pool_layout::shared(shape, 3072).value()}), backend);
  auto visit = cache.make_visit();
  splitmix64 random(5);
  std::vector<expert_id> ids(8);
  const auto draw = [&] {
    return static_cast<expert_id>(random.below(8) == 0 ? random.below(experts) : random.below(48));
  };
  std::vector<prefetch_request> wanted(count);
  std::uint64_t done = 0;
  for (auto _ : state) {
    routing_view view;
    view.layer = static_cast<layer_id>(done % layers);
    view.step = done / layers;
    for (auto& id : ids) id = draw();
    view.experts = ids;
    stream.synchronise();
    backend.advance(stream.host());
    if (cache.resolve(view, stream, visit) != status::ok) state.SkipWithError("refused");
    for (auto& request : wanted)
      request = {{after(view.layer), draw()}, view.layer + 1 == layers ? view.step + 1 : view.step};
    if (cache.prefetch(visit.plan().context(), wanted, stream) != status::ok)
      state.SkipWithError("lost");
    stream.run(200'000);
    cache.release(visit, stream);
    ++done;
  }
  const auto stats = cache.stats();
  state.counters["hit_rate"] =
      static_cast<double>(stats.hits) / static_cast<double>(stats.accesses);
}
BENCHMARK(BM_PrefetchingVisit)->ArgName("requests")->Arg(0)->Arg(8)->Arg(16);

}  // namespace

BENCHMARK_MAIN();
