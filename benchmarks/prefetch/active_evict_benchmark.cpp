// SPDX-License-Identifier: Apache-2.0
/// Cost of looking ahead in a visit: deciding how many slots to free, and passing forecasts to eviction by
/// importance.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include <benchmark/benchmark.h>

#include "hotset/eviction/importance.hpp"
#include "hotset/prefetch/active_evict.hpp"
#include "lab/traces/synthetic/synthetic.hpp"

namespace {

using namespace hotset;

constexpr std::size_t kinds = 256;  // visits, used cyclically
constexpr std::int32_t layers = 48;

/// Routed experts and forecasts of a token each; three quarters of the experts are resident.
struct visits {
  explicit visits(const geometry& shape)
      : experts(static_cast<std::size_t>(shape.experts)),
        top_k(static_cast<std::size_t>(shape.top_k)),
        row(experts) {
    splitmix64 random(7);
    std::vector<expert_id> order(experts);
    std::iota(order.begin(), order.end(), expert_id{0});
    for (std::size_t visit = 0; visit < kinds; ++visit) {
      for (std::size_t k = 0; k < top_k; ++k)
        std::swap(order[k], order[k + random.below(experts - k)]);
      ids.insert(ids.end(), order.begin(), order.begin() + shape.top_k);
      for (std::size_t e = 0; e < experts; ++e)
        scores.push_back(static_cast<float>(random.uniform() * random.uniform()));
    }
    for (std::size_t e = 0; e < experts; ++e)
      row[e] = e % 4 == 0 ? no_slot : static_cast<slot_id>(e);
  }
  [[nodiscard]] std::span<const expert_id> routed(std::size_t visit) const {
    return std::span(ids).subspan(visit % kinds * top_k, top_k);
  }
  [[nodiscard]] forecast expected(std::size_t visit) const {
    return {.probabilities = std::span(scores).subspan(visit % kinds * experts, experts),
            .depth = 1};
  }
  std::size_t experts, top_k;
  std::vector<expert_id> ids;
  std::vector<float> scores;
  std::vector<slot_id> row;
};

geometry shape_of(const benchmark::State& state) {
  return {.layers = layers,
          .experts = static_cast<std::int32_t>(state.range(0)),
          .top_k = static_cast<std::int32_t>(state.range(1))};
}

void release_decision(benchmark::State& state) {
  const auto shape = shape_of(state);
  const visits made(shape);
  active_evict policy(shape, {});
  std::size_t visit = 0;
  for (auto _ : state) {
    const auto target = policy.decide(made.expected(visit++), {made.row});
    benchmark::DoNotOptimize(target.free);
  }
}

void importance_update(benchmark::State& state) {
  const auto shape = shape_of(state);
  const visits made(shape);
  const auto layout = pool_layout::per_layer(shape, (shape.experts * 3) / 4).value();
  importance policy(layout, {});
  std::size_t visit = 0;
  for (auto _ : state) {
    const auto layer = static_cast<layer_id>(visit % layers);
    routing_view view;
    view.layer = layer;
    view.step = visit / layers;
    view.experts = made.routed(visit);
    policy.on_routed(view);
    const visit_context context{.layer = layer, .step = view.step};
    policy.on_visit({.context = context});
    policy.on_forecast(context, made.expected(visit));
    benchmark::ClobberMemory();
    ++visit;
  }
}

void shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"experts", "top_k"});
  for (const auto& [experts, top_k] : {std::pair{8, 2}, {64, 6}, {128, 8}, {256, 8}})
    b->Args({experts, top_k});
}
BENCHMARK(release_decision)->Apply(shapes);
BENCHMARK(importance_update)->Apply(shapes);

}  // namespace

BENCHMARK_MAIN();
