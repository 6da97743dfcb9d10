// SPDX-License-Identifier: Apache-2.0
/// Reuse distance of every access: few keys, many keys, a sample of them. Items are accesses.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include <benchmark/benchmark.h>

#include "hotset/planning/curve/curve_recorder.hpp"
#include "hotset/planning/curve/decayed_histogram.hpp"
#include "hotset/planning/curve/recency_bitmap.hpp"
#include "hotset/planning/curve/sampled_reuse_distance.hpp"
#include "hotset/trace/visit_sequence.hpp"
#include "lab/traces/synthetic/synthetic.hpp"

namespace {

using namespace hotset;

/// Steps through 48 layers, sticky and skewed.
const visit_sequence& routing(std::int32_t experts) {
  static std::map<std::int32_t, visit_sequence> known;
  auto& visits = known[experts];
  if (visits.empty()) {
    synthetic_config config;
    config.layers = 48;
    config.experts = experts;
    config.top_k = 8;
    config.tokens = 2000;
    config.zipf = 1.0;
    visits = visit_sequence(synthetic_trace(config).value());
  }
  return visits;
}

void BM_Curve(benchmark::State& state, cache_scope scope) {
  const auto& visits = routing(static_cast<std::int32_t>(state.range(0)));
  curve_recorder recorder(visits.shape(), scope);
  for (auto _ : state) {
    for (std::size_t i = 0; i < visits.size(); ++i) recorder.observe(visits[i]);
  }
  std::uint64_t accesses = 0;
  for (const auto& histogram : recorder.histograms()) accesses += histogram.accesses();
  if (accesses != visits.accesses() * static_cast<std::uint64_t>(state.iterations()))
    state.SkipWithError("accesses were lost");
  state.SetItemsProcessed(static_cast<std::int64_t>(accesses));
}
BENCHMARK_CAPTURE(BM_Curve, per_layer, cache_scope::per_layer)
    ->ArgName("experts")
    ->Arg(64)
    ->Arg(128)
    ->Arg(256)
    ->Arg(512);
BENCHMARK_CAPTURE(BM_Curve, shared, cache_scope::shared)
    ->ArgName("experts")
    ->Arg(64)
    ->Arg(128)
    ->Arg(256);

/// Skewed references to many keys with drifting popularity.
const std::vector<expert_id>& references(std::size_t keys) {
  static std::map<std::size_t, std::vector<expert_id>> known;
  auto& ids = known[keys];
  if (ids.empty()) {
    splitmix64 random(9);
    ids.resize(std::size_t{1} << 22);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto rank = std::pow(random.uniform(), 2.0) * static_cast<double>(keys);
      ids[i] = static_cast<expert_id>((static_cast<std::size_t>(rank) + i / 16) % keys);
    }
  }
  return ids;
}

void BM_Distance_bitmap(benchmark::State& state) {
  const auto keys = static_cast<std::size_t>(state.range(0));
  const auto& ids = references(keys);
  recency_bitmap stack(keys);
  std::uint64_t sum = 0;
  for (auto _ : state) {
    for (const auto id : ids) {
      sum += stack.distance(index_of(id));
      stack.touch(index_of(id));
    }
  }
  benchmark::DoNotOptimize(sum);
  state.SetItemsProcessed(static_cast<std::int64_t>(ids.size()) * state.iterations());
}
BENCHMARK(BM_Distance_bitmap)->ArgName("keys")->RangeMultiplier(10)->Range(1000, 10000000);

/// The textbook's Fenwick tree over every access: the peer.
void BM_Distance_fenwick(benchmark::State& state) {
  const auto keys = static_cast<std::size_t>(state.range(0));
  const auto& ids = references(keys);
  std::uint64_t sum = 0;
  for (auto _ : state) {
    std::vector<std::uint32_t> tree(ids.size() + 1, 0);
    std::vector<std::uint32_t> last(keys, 0);
    std::uint32_t live = 0;
    const auto add = [&](std::size_t i, std::uint32_t n) {
      for (; i < tree.size(); i += i & (0 - i)) tree[i] += n;
    };
    for (std::size_t t = 1; t <= ids.size(); ++t) {
      auto& touched = last[index_of(ids[t - 1])];
      if (touched != 0) {
        std::uint32_t before = 0;
        for (std::size_t i = touched - 1; i > 0; i &= i - 1) before += tree[i];
        sum += live - before;
        add(touched, 0U - 1U);
      } else {
        ++live;
      }
      add(t, 1);
      touched = static_cast<std::uint32_t>(t);
    }
  }
  benchmark::DoNotOptimize(sum);
  state.SetItemsProcessed(static_cast<std::int64_t>(ids.size()) * state.iterations());
}
BENCHMARK(BM_Distance_fenwick)->ArgName("keys")->Arg(10000)->Arg(1000000);

void BM_Distance_shards(benchmark::State& state) {
  const auto keys = std::size_t{1000000};
  const auto& ids = references(keys);
  auto sampled = sampled_reuse_distance::create(
                     {.keys = keys, .rate = static_cast<double>(state.range(0)) / 1000.0})
                     .value();
  for (auto _ : state)
    for (const auto& id : ids) sampled.visit(std::span(&id, 1), 0, 1);
  benchmark::DoNotOptimize(sampled.first_sights());
  state.SetItemsProcessed(static_cast<std::int64_t>(ids.size()) * state.iterations());
}
BENCHMARK(BM_Distance_shards)->ArgName("per_mille")->Arg(1)->Arg(10)->Arg(100);

void BM_EndBurst(benchmark::State& state) {
  auto histogram =
      decayed_histogram::create({.slots = static_cast<std::size_t>(state.range(0)), .decay = 0.9})
          .value();
  for (auto _ : state) {
    histogram.add(3);
    histogram.end_burst();
  }
  benchmark::DoNotOptimize(histogram.misses(2));
}
BENCHMARK(BM_EndBurst)->ArgName("bins")->Arg(128)->Arg(4096);

}  // namespace

BENCHMARK_MAIN();
