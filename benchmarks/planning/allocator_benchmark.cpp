// SPDX-License-Identifier: Apache-2.0
/// One division of a budget among the layers of a model and its KV cache, from curves measured on a trace.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <queue>
#include <span>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "hotset/planning/budget/equimarginal.hpp"
#include "hotset/planning/curve/curve_recorder.hpp"
#include "hotset/planning/curve/miss_curve.hpp"
#include "hotset/planning/curve/recency_bitmap.hpp"
#include "hotset/planning/curve/reuse_distance.hpp"
#include "hotset/trace/visit_sequence.hpp"
#include "lab/traces/synthetic/synthetic.hpp"

namespace {

using namespace hotset;

struct model_size {
  std::int32_t layers = 0;
  std::int32_t experts = 0;
  std::size_t blocks = 0;
  std::uint64_t expert_bytes = 0;
  std::uint64_t block_bytes = 0;
};
/// Experts of 9 MiB; blocks of 16 tokens with 2 KiB a layer and token: 32 GiB of them.
constexpr model_size whole{64, 256, 16384, 9U << 20U, 2U << 20U};
constexpr model_size small{8, 32, 512, 8U << 20U, 1U << 20U};

/// Skewed references to KV blocks with drifting popularity: misses of a step that looks at 64 of them.
std::vector<std::uint64_t> kv_misses(std::size_t blocks, std::size_t references) {
  splitmix64 random(5);
  recency_bitmap stack(blocks);
  reuse_histogram histogram(blocks);
  for (std::size_t i = 0; i < references; ++i) {
    const auto rank = std::pow(random.uniform(), 3.0) * static_cast<double>(blocks);
    const auto key = (static_cast<std::size_t>(rank) + i / 64) % blocks;
    histogram.add(stack.distance(key));
    histogram.end_visit(1);
    stack.touch(key);
  }
  return histogram.misses();
}

/// Curves of all layers and of the blocks, all different.
struct workload {
  std::vector<sampled_miss_curve> curves;
  std::vector<memory_consumer> consumers;
  std::uint64_t floors = 0;
  std::uint64_t all_bytes = 0;

  explicit workload(const model_size& model) {
    constexpr std::uint64_t steps = 1000;
    const visit_sequence visits(synthetic_trace({.layers = model.layers,
                                                 .experts = model.experts,
                                                 .top_k = 8,
                                                 .tokens = steps,
                                                 .zipf = 0.9,
                                                 .stickiness = 0.3,
                                                 .seed = 12})
                                    .value());
    curve_recorder recorder(visits.shape(), cache_scope::per_layer);
    for (std::size_t i = 0; i < visits.size(); ++i) recorder.observe(visits[i]);
    curves.reserve(recorder.histograms().size() + 1);
    for (const auto& histogram : recorder.histograms())
      add(histogram.misses(), steps,
          {.unit_bytes = model.expert_bytes, .seconds_per_miss = 4e-4, .min_units = 8});
    add(kv_misses(model.blocks, 64 * steps), steps,
        {.unit_bytes = model.block_bytes, .seconds_per_miss = 2e-4, .min_units = 64});
  }
  workload(const workload&) = delete;
  workload& operator=(const workload&) = delete;
  ~workload() = default;

  /// Bytes above the floors.
  [[nodiscard]] std::uint64_t bytes(std::int64_t percent) const {
    return floors + (all_bytes - floors) / 100 * static_cast<std::uint64_t>(percent);
  }

 private:
  void add(const std::vector<std::uint64_t>& misses, std::uint64_t steps,
           memory_consumer consumer) {
    curves.push_back(sampled_miss_curve::per_step(misses, steps));
    consumer.curve = curves.back();
    consumers.push_back(consumer);
    floors += consumer.min_units * consumer.unit_bytes;
    all_bytes += consumer.cap() * consumer.unit_bytes;
  }
};

const workload& of(const model_size& model) {
  static std::map<std::int32_t, workload> known;
  return known.try_emplace(model.layers, model).first->second;
}

/// The obvious first version: repeatedly the unit that saves most for its bytes, from a priority queue. It looks one
/// unit ahead, so a flat part of a curve stops it.
class unit_greedy {
 public:
  using consumer_type = memory_consumer;
  using allocation_type = allocation;
  [[nodiscard]] static result<allocation> allocate(std::span<const memory_consumer> consumers,
                                                   std::uint64_t total_bytes) {
    std::vector<std::uint64_t> units;
    std::priority_queue<std::pair<double, std::size_t>> next;
    auto left = total_bytes;
    const auto offer = [&](std::size_t i) {
      const auto& c = consumers[i];
      if (units[i] >= c.cap()) return;
      const auto gain = c.seconds(units[i]) - c.seconds(units[i] + 1);
      if (gain > 0) next.emplace(gain / static_cast<double>(c.unit_bytes), i);
    };
    for (std::size_t i = 0; i < consumers.size(); ++i) {
      units.push_back(consumers[i].min_units);
      left -= consumers[i].min_units * consumers[i].unit_bytes;
      offer(i);
    }
    while (!next.empty()) {
      const auto i = next.top().second;
      next.pop();
      if (consumers[i].unit_bytes > left) continue;
      ++units[i];
      left -= consumers[i].unit_bytes;
      offer(i);
    }
    return priced(consumers, std::move(units));
  }
};

/// The counter `over_bound` is the relative excess of a step's time over the bound of all divisions.
template <class Allocator>
void divide(benchmark::State& state, const model_size& model) {
  const auto& work = of(model);
  const auto bytes = work.bytes(state.range(0));
  const auto bound = equimarginal().allocate(work.consumers, bytes)->bound;
  const Allocator allocator;
  double seconds = 0;
  for (auto _ : state) {
    const auto found = allocator.allocate(work.consumers, bytes);
    if (!found || found->bytes > bytes) state.SkipWithError("no division");
    seconds = found->seconds;
  }
  if (seconds < bound * (1 - 1e-9)) state.SkipWithError("a division beats the bound");
  state.counters["over_bound"] = seconds / bound - 1;
}

template <class Allocator>
void BM_Whole(benchmark::State& state) {
  divide<Allocator>(state, whole);
}
template <class Allocator>
void BM_Small(benchmark::State& state) {
  divide<Allocator>(state, small);
}

void budgets(benchmark::internal::Benchmark* b) {
  b->ArgName("percent")->Arg(10)->Arg(50)->Arg(90)->Unit(benchmark::kMicrosecond);
}
BENCHMARK(BM_Whole<unit_greedy>)->Apply(budgets);
BENCHMARK(BM_Whole<equimarginal>)->Apply(budgets);
BENCHMARK(BM_Small<unit_greedy>)->Apply(budgets);
BENCHMARK(BM_Small<equimarginal>)->Apply(budgets);

}  // namespace

BENCHMARK_MAIN();
