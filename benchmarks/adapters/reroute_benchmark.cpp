// SPDX-License-Identifier: Apache-2.0
/// Rerouting a batch's ids to their adapters' experts. Compared with a loop that divides for each id's token, and two
/// floors: a copy of the ids, and an unchecked gather of as many values.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "hotset/adapters/expert_redirect.hpp"
#include "hotset/adapters/reroute.hpp"
#include "hotset/core/numbers/splitmix64.hpp"

namespace {

using namespace hotset;

constexpr std::int32_t experts = 64;
constexpr std::int32_t adapters = 20;
constexpr std::int32_t most_tuned = 13;

/// Adapters of a batch's tokens: mixed in any order, runs of 128 tokens of one adapter, or the base model only.
enum class mix { mixed, runs, base };

struct batch {
  batch(std::size_t tokens, std::size_t top_k, mix of)
      : map(*expert_redirect::create({experts, adapters, most_tuned})) {
    splitmix64 random(7);
    for (std::int32_t a = 0; a < adapters; ++a) {
      std::vector<expert_id> tuned;
      for (expert_id e{}; e < experts && tuned.size() < most_tuned; ++e)
        if (random.below(5) == 0) tuned.push_back(e);
      (void)map.assign(a, tuned);
    }
    for (std::size_t t = 0; t < tokens; ++t) {
      std::int32_t adapter = -1;
      if (of == mix::mixed) adapter = static_cast<std::int32_t>(random.below(adapters + 1)) - 1;
      if (of == mix::runs) adapter = static_cast<std::int32_t>(t / 128 % adapters);
      adapter_of_token.push_back(adapter);
      for (std::size_t k = 0; k < top_k; ++k) {
        const auto id = static_cast<expert_id>(random.below(experts));
        ids.push_back(id);
        entries.push_back(std::max(adapter, 0) * experts + number(id));
      }
    }
    out.resize(ids.size());
  }
  [[nodiscard]] redirect_rows rows() const {
    return {map.rows().data(), map.adapters(), map.experts()};
  }
  expert_redirect map;
  std::vector<std::int32_t> adapter_of_token;
  std::vector<expert_id> ids;
  std::vector<std::int32_t> entries;  // entries of the map, for the unchecked gather
  std::vector<std::int32_t> out;
};

/// The peer: a division, a test and an address for each id.
std::uint64_t dividing_reroute(redirect_rows map, std::span<const expert_id> ids,
                               std::span<const std::int32_t> adapter_of_token,
                               std::span<std::int32_t> out) {
  std::uint64_t done = 0;
  const auto tokens = adapter_of_token.size();
  const auto top_k = tokens == 0 ? 0 : ids.size() / tokens;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto adapter = adapter_of_token[i / top_k];
    const bool refused = is_refused(map, ids[i], adapter);
    done += refused ? 1U : 0U;
    out[i] = number(refused ? no_expert : redirected(map, ids[i], adapter));
  }
  return done;
}

void gather(const batch& b, std::int32_t* out) {
  const auto* const rows = b.rows().rows;
  for (std::size_t i = 0; i < b.entries.size(); ++i) out[i] = number(rows[b.entries[i]]);
}

/// Runs `pass` on a batch's ids, out of place.
template <class Pass>
void time_ids(benchmark::State& state, batch& b, Pass pass) {
  for (auto _ : state) {
    pass(b);
    benchmark::DoNotOptimize(b.out.data());
    benchmark::ClobberMemory();
  }
  state.counters["s_per_id"] = benchmark::Counter(
      static_cast<double>(b.ids.size()),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

const char* name_of(mix of) {
  switch (of) {
    case mix::mixed: return "mixed";
    case mix::runs: return "runs";
    case mix::base: return "base";
  }
  return "";
}

template <class Pass>
void bench(const std::string& name, std::size_t tokens, std::size_t top_k, mix of, Pass pass) {
  const auto whole = "BM_" + name + "/" + name_of(of) + "/tokens:" + std::to_string(tokens) +
                     "/top_k:" + std::to_string(top_k);
  benchmark::RegisterBenchmark(whole.c_str(), [=](benchmark::State& state) {
    batch b(tokens, top_k, of);
    pass(state, b);
  });
}

void bench_shape(std::size_t tokens, std::size_t top_k, mix of) {
  bench("Copy", tokens, top_k, of, [](benchmark::State& state, batch& made) {
    time_ids(state, made, [](batch& b) {
      std::memcpy(b.out.data(), b.ids.data(), b.ids.size() * sizeof(expert_id));
    });
  });
  bench("Reroute/dividing", tokens, top_k, of, [](benchmark::State& state, batch& made) {
    time_ids(state, made, [](batch& b) {
      benchmark::DoNotOptimize(dividing_reroute(b.rows(), b.ids, b.adapter_of_token, b.out));
    });
  });
  bench("Gather", tokens, top_k, of, [](benchmark::State& state, batch& made) {
    time_ids(state, made, [](batch& b) { gather(b, b.out.data()); });
  });
  bench("Reroute", tokens, top_k, of, [](benchmark::State& state, batch& made) {
    std::vector<std::int32_t> expected(made.ids.size());
    (void)dividing_reroute(made.rows(), made.ids, made.adapter_of_token, expected);
    time_ids(state, made, [](batch& b) {
      benchmark::DoNotOptimize(reroute(b.rows(), b.ids, b.adapter_of_token, b.out));
    });
    if (made.out != expected) state.SkipWithError("not what the dividing loop writes");
  });
}

}  // namespace

int main(int count, char** arguments) {
  bench_shape(4096, 8, mix::mixed);
  bench_shape(4096, 6, mix::mixed);
  bench_shape(32, 8, mix::mixed);
  bench_shape(1, 8, mix::mixed);
  bench_shape(4096, 8, mix::runs);
  bench_shape(4096, 8, mix::base);
  benchmark::Initialize(&count, arguments);
  if (benchmark::ReportUnrecognizedArguments(count, arguments)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
