// SPDX-License-Identifier: Apache-2.0
/// Cost of the timed model per fill: the calls of one visit on a virtual clock, with and without a link.

#include <array>
#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include "lab/replay/clock_backend.hpp"
#include "lab/traces/synthetic/synthetic.hpp"

namespace {

using namespace hotset;

constexpr std::int32_t layers = 32;
constexpr std::int32_t experts = 128;
constexpr std::size_t most_demand = 8;

struct visit {
  layer_id layer{};
  std::size_t demand = 0;
  std::size_t speculative = 0;
  ticks compute = 0;
};

/// Up to 8 demand fills and, if `speculative`, a prefetch every other time; computing takes 20 to 60 us.
std::vector<visit> make_visits(bool speculative) {
  splitmix64 random(7);
  std::vector<visit> visits(4096);
  std::int32_t next = 0;
  for (auto& v : visits) {
    v.layer = layer_id{next++ % layers};
    v.demand = random.below(most_demand + 1);
    v.speculative = speculative ? random.below(2) : 0;
    v.compute = 20'000 + random.below(40'000);
  }
  return visits;
}

/// One iteration is one visit; the counter `fill` is the time per fill, including all calls of the visit.
void BM_TimedVisit(benchmark::State& state) {
  const bool timed = state.range(0) != 0;
  const auto visits = make_visits(state.range(1) != 0);
  geometry shape{.layers = layers, .experts = experts, .top_k = 8};
  shape.expert_bytes = {1'000'000};
  const link_model link =
      timed ? link_model(
                  {.bytes_per_second = 50'000'000'000, .latency = 5'000, .chunk_bytes = 1 << 18})
            : link_model::instant();
  clock_backend backend({.link = link, .shape = shape});
  clock_stream stream;
  std::array<fill, most_demand> demand{};
  fill prefetch{};
  ticket reader = no_ticket;
  std::uint64_t fills = 0;
  std::size_t at = 0;
  for (auto _ : state) {
    const auto& v = visits[at++ % visits.size()];
    stream.synchronise();
    backend.advance(stream.host());
    if (v.demand != 0) {
      for (std::size_t n = 0; n < v.demand; ++n) {
        demand[n].key = {v.layer, static_cast<expert_id>(n)};
        demand[n].after = reader;
      }
      const auto sent = backend.submit(std::span(demand).first(v.demand), stream, urgency::now);
      if (sent.accepted != v.demand || backend.fence(stream, sent.id) != status::ok) {
        state.SkipWithError("a fill was refused");
        break;
      }
    }
    if (v.speculative != 0) {
      prefetch.key = {v.layer, expert_id{100}};
      (void)backend.submit(std::span(&prefetch, 1), stream, urgency::soon);
    }
    stream.run(v.compute);
    reader = backend.record(stream);
    fills += v.demand + v.speculative;
  }
  benchmark::DoNotOptimize(backend.bytes_moved());
  state.counters["fill"] = benchmark::Counter(
      static_cast<double>(fills), benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["link_busy"] = benchmark::Counter(static_cast<double>(backend.busy()) /
                                                   static_cast<double>(backend.now() + 1));
}

BENCHMARK(BM_TimedVisit)->ArgNames({"timed", "speculative"})->ArgsProduct({{0, 1}, {0, 1}});

}  // namespace

BENCHMARK_MAIN();
