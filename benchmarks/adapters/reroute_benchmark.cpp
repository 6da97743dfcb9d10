// SPDX-License-Identifier: Apache-2.0
/// A batch's ids rerouted to their adapters' experts, by level, beside the loop that did it before and two floors: a
/// copy of the ids, and a gather of as many values with nothing checked.

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
#include "hotset/core/platform/compiler.hpp"
#if HOTSET_X86_VECTORS
#include <immintrin.h>
#endif

namespace {

using namespace hotset;

constexpr std::int32_t experts = 64;
constexpr std::int32_t adapters = 20;
constexpr std::int32_t most_tuned = 13;

/// Whose tokens a batch has: anyone's in any order, 128 of one adapter at a time, the base model's alone.
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
    for (const auto s : each<slot_id>(map.virtual_experts()))
      slots.push_back(random.below(2) == 0 ? no_slot : s);
    out.resize(ids.size());
  }
  [[nodiscard]] redirect_rows rows() const {
    return {map.rows().data(), map.adapters(), map.experts()};
  }
  expert_redirect map;
  std::vector<std::int32_t> adapter_of_token;
  std::vector<expert_id> ids;
  std::vector<std::int32_t> entries;  // of the map, for the gather that checks nothing
  std::vector<slot_id> slots;
  std::vector<std::int32_t> out;
};

/// The peer: a division, a test and an address for each id.
std::uint64_t former_reroute(redirect_rows map, std::span<const expert_id> ids,
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

void gather_each(const expert_id* rows, const std::vector<std::int32_t>& entries,
                 std::int32_t* out) {
  for (std::size_t i = 0; i < entries.size(); ++i) out[i] = number(rows[entries[i]]);
}
#if HOTSET_X86_VECTORS
__attribute__((target("avx2"))) void gather_8(const expert_id* rows,
                                              const std::vector<std::int32_t>& entries,
                                              std::int32_t* out) {
  const auto* const places = detail::rerouting::numbers(rows);
  std::size_t i = 0;
  for (; i + 8 <= entries.size(); i += 8) {
    const __m256i at = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(entries.data() + i));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), _mm256_i32gather_epi32(places, at, 4));
  }
  for (; i < entries.size(); ++i) out[i] = number(rows[entries[i]]);
}
#endif
void gather(vector_level level, const batch& b, std::int32_t* out) {
  const auto* const rows = b.rows().rows;
#if HOTSET_X86_VECTORS
  if (level != vector_level::scalar) return gather_8(rows, b.entries, out);
#else
  static_cast<void>(level);
#endif
  gather_each(rows, b.entries, out);
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

const char* name_of(vector_level level) {
  return level == vector_level::scalar ? "scalar" : "avx2";
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
  bench("Reroute/former", tokens, top_k, of, [](benchmark::State& state, batch& made) {
    time_ids(state, made, [](batch& b) {
      benchmark::DoNotOptimize(former_reroute(b.rows(), b.ids, b.adapter_of_token, b.out));
    });
  });
  for (const auto level : {vector_level::scalar, vector_level::avx2}) {
    if (level > best_vector_level()) continue;
    const std::string end = name_of(level);
    bench("Gather/" + end, tokens, top_k, of, [level](benchmark::State& state, batch& made) {
      time_ids(state, made, [level](batch& b) { gather(level, b, b.out.data()); });
    });
    bench("Reroute/" + end, tokens, top_k, of, [level](benchmark::State& state, batch& made) {
      std::vector<std::int32_t> expected(made.ids.size());
      (void)former_reroute(made.rows(), made.ids, made.adapter_of_token, expected);
      time_ids(state, made, [level](batch& b) {
        benchmark::DoNotOptimize(reroute(b.rows(), b.ids, b.adapter_of_token, b.out, level));
      });
      if (made.out != expected) state.SkipWithError("not what the former loop writes");
    });
    bench("RerouteToSlots/" + end, tokens, top_k, of,
          [level](benchmark::State& state, batch& made) {
            std::vector<std::int32_t> expected(made.ids.size());
            (void)former_reroute(made.rows(), made.ids, made.adapter_of_token, expected);
            for (auto& e : expected) e = number(made.slots[static_cast<std::size_t>(e)]);
            time_ids(state, made, [level](batch& b) {
              benchmark::DoNotOptimize(
                  reroute_to_slots(b.rows(), b.slots, b.ids, b.adapter_of_token, b.out, level));
            });
            if (made.out != expected) state.SkipWithError("not the slots of those experts");
          });
  }
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
