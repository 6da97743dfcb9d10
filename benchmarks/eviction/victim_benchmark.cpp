// SPDX-License-Identifier: Apache-2.0
/// One victim selected, evicted and filled again, for shared pools of 8 to 4096 slots.

#include <array>
#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include "hotset/eviction/fifo.hpp"
#include "hotset/eviction/furthest_layer.hpp"
#include "hotset/eviction/gate_score.hpp"
#include "hotset/eviction/least_stale.hpp"
#include "hotset/eviction/lfru.hpp"
#include "hotset/eviction/lfu.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/eviction/popularity.hpp"
#include "lab/traces/synthetic/synthetic.hpp"

namespace {

using namespace hotset;

constexpr std::int32_t layers = 64;
constexpr std::int32_t experts = 128;

template <class P>
void BM_Victim(benchmark::State& state) {
  const auto slots = state.range(0);
  const auto layout =
      pool_layout::shared({.layers = layers, .experts = experts, .top_k = 8}, slots).value();
  P policy(layout, {});
  slot_mask eligible(layout.slots());
  std::vector<expert_key> held(layout.slots());
  // One use of an expert: a resident, or a copy that replaces `victim`.
  const auto use = [&](expert_key key, slot_id slot, step_id step, bool filled,
                       expert_key victim = no_key) {
    const visit_context context{.layer = key.layer, .step = step};
    const hotset::fill copy{.key = key, .slot = slot, .victim = victim};
    const double weight = 0.25;
    policy.on_visit({.context = context,
                     .used = std::span(&slot, 1),
                     .fills = std::span(&copy, filled ? 1 : 0),
                     .experts = std::span(&key.expert, 1),
                     .weights = std::span(&weight, 1)});
    held[index_of(slot)] = key;
    eligible.set(slot);
  };
  const auto key_of = [&](std::uint64_t n) {
    return layout.shape().key(n % layout.shape().keys());
  };
  for (std::int64_t s = 0; s < slots; ++s)
    use(key_of(static_cast<std::uint64_t>(s)), static_cast<slot_id>(s), 0, true);
  splitmix64 random(5);
  visit_context context;
  std::uint64_t next = static_cast<std::uint64_t>(slots);
  for (auto _ : state) {
    // A step of the model: some hits, one victim, one fill.
    context.step = next;
    context.layer = static_cast<layer_id>(next % layers);
    for (int h = 0; h < 4; ++h) {
      const auto slot = static_cast<slot_id>(random.below(static_cast<std::uint64_t>(slots)));
      use(held[index_of(slot)], slot, next, false);
    }
    std::array<slot_id, 1> victim{no_slot};
    if (policy.select_victims(context, eligible, victim) != 1) state.SkipWithError("no victim");
    use(key_of(next), victim[0], next, true, held[index_of(victim[0])]);
    ++next;
  }
}

void grow(benchmark::internal::Benchmark* b) {
  b->ArgName("slots")->RangeMultiplier(2)->Range(8, 4096);
}

BENCHMARK(BM_Victim<lru>)->Apply(grow);
BENCHMARK(BM_Victim<fifo>)->Apply(grow);
BENCHMARK(BM_Victim<furthest_layer>)->Apply(grow);
BENCHMARK(BM_Victim<least_stale>)->Apply(grow);
BENCHMARK(BM_Victim<lfu>)->Apply(grow);
BENCHMARK(BM_Victim<gate_score>)->Apply(grow);
BENCHMARK(BM_Victim<popularity>)->Apply(grow);
BENCHMARK(BM_Victim<lfru>)->Apply(grow);

}  // namespace

BENCHMARK_MAIN();
