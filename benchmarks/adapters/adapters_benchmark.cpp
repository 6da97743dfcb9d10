// SPDX-License-Identifier: Apache-2.0
/// Cost of adapters: loading one, compared with its unavoidable copies; and an engine's whole step, compared with the
/// weight bytes that it reads.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "hotset/adapters/adapter_registry.hpp"
#include "hotset/adapters/page_pool.hpp"
#include "hotset/adapters/uploader.hpp"
#include "hotset/core/numbers/splitmix64.hpp"
#include "hotset/transfer/memory/host_virtual_memory.hpp"
#ifdef HOTSET_TINY_MOE_DIR
#include "tiny_moe/experts/adapters.hpp"
#include "tiny_moe/experts/registered_adapters.hpp"
#include "tiny_moe/model/engine.hpp"
#endif

namespace {

using namespace hotset;
using clock_type = std::chrono::steady_clock;

double seconds(clock_type::duration time) { return std::chrono::duration<double>(time).count(); }

/// DeepSeek-V2-Lite's experts at a sixteenth of their bytes, in 8 layers: an adapter is 66 MiB. With the base model's
/// experts, the host's copy and the one for comparison, 264 MiB are in use.
constexpr std::int32_t layers = 8;
constexpr std::int32_t experts = 8;
constexpr std::array<std::size_t, 2> expert_bytes{704U << 10U, 352U << 10U};

class adapter_loads {
 public:
  explicit adapter_loads(std::size_t page_bytes)
      : memory_(host_virtual_memory::create(page_bytes).value()),
        pool_(page_pool<host_virtual_memory>::create(
                  memory_, {.page_bytes = page_bytes, .most_pages = most_pages(page_bytes)})
                  .value()),
        registry_(registry_type::create(pool_, copies_, shape(), fill).value()),
        source_(adapter_bytes(), std::byte{7}) {
    std::vector<expert_id> all;
    for (const auto e : each<expert_id>(experts)) all.push_back(e);
    (void)registry_.add("a", std::vector(static_cast<std::size_t>(layers), all));
    (void)load();  // now the host has it, and the pool has its pages
    unload();
  }
  static std::size_t adapter_bytes() {
    return static_cast<std::size_t>(layers * experts) * (expert_bytes[0] + expert_bytes[1]);
  }
  bool load() { return registry_.acquire("a").code == adapter_status::ok; }
  void unload() {
    (void)registry_.release("a");
    (void)registry_.unload("a");
  }
  void drop_pages() { (void)pool_.trim(0); }
  /// Copies the same bytes from host memory to the mapped pages. Pre: loaded.
  void copy() {
    std::size_t at = 0;
    for (const auto l : each<layer_id>(layers))
      for (std::size_t w = 0; w < expert_bytes.size(); ++w) {
        const auto bytes = static_cast<std::size_t>(experts) * expert_bytes[w];
        const auto to = registry_.tensor(l, w).bytes(expert_id{experts});
        std::memcpy(to.data(), source_.data() + at, bytes);
        at += bytes;
      }
  }

 private:
  using registry_type = adapter_registry<host_virtual_memory, host_uploader>;

  static adapter_registry_config shape() {
    return {.layers = layers,
            .experts = experts,
            .adapters = 1,
            .most_tuned = experts,
            .expert_bytes = {expert_bytes.begin(), expert_bytes.end()},
            .host_bytes = adapter_bytes(),
            .most_known = 1};
  }
  static std::uint32_t most_pages(std::size_t page_bytes) {
    const auto tensors = static_cast<std::size_t>(layers) * expert_bytes.size();
    return static_cast<std::uint32_t>(adapter_bytes() / page_bytes + 2 * tensors);
  }
  static bool fill(const adapter_part&, std::span<std::byte> bytes) {
    std::ranges::fill(bytes, std::byte{7});
    return true;
  }

  host_virtual_memory memory_;
  page_pool<host_virtual_memory> pool_;
  host_uploader copies_;
  registry_type registry_;
  std::vector<std::byte> source_;
};

/// Pages come from an evicted adapter, or are created.
enum class pages { pooled, created };

void time_loads(benchmark::State& state, std::size_t page_bytes, pages from) {
  adapter_loads adapters(page_bytes);
  double all_loads = 0;
  double all_copies = 0;
  for (auto _ : state) {
    if (from == pages::created) adapters.drop_pages();
    const auto begin = clock_type::now();
    if (!adapters.load()) {
      state.SkipWithError("the adapter was not loaded");
      break;
    }
    const auto loaded = clock_type::now();
    adapters.copy();
    const auto copied = clock_type::now();
    benchmark::ClobberMemory();
    adapters.unload();
    state.SetIterationTime(seconds(loaded - begin));
    all_loads += seconds(loaded - begin);
    all_copies += seconds(copied - loaded);
  }
  state.SetBytesProcessed(state.iterations() *
                          static_cast<std::int64_t>(adapter_loads::adapter_bytes()));
  state.counters["copy_s"] = benchmark::Counter(all_copies, benchmark::Counter::kAvgIterations);
  state.counters["load_over_copy"] = all_loads / all_copies;
}

void bench_loads() {
  for (const std::size_t kib : {4U, 64U, 2048U})
    for (const auto from : {pages::pooled, pages::created}) {
      const auto name = std::string("BM_LoadAdapter/") +
                        (from == pages::pooled ? "pooled" : "created") +
                        "/page_kib:" + std::to_string(kib);
      benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
        time_loads(state, kib << 10U, from);
      })->UseManualTime();
    }
}

#ifdef HOTSET_TINY_MOE_DIR
const tiny_moe::model& weights() {
  static const tiny_moe::model loaded(HOTSET_TINY_MOE_DIR);
  return loaded;
}

/// A quarter of each layer's experts with the last bit of a weight changed at random: the routing is the base
/// model's.
tiny_moe::adapter_weights perturbed(std::uint64_t seed) {
  const auto& shape = weights().config();
  splitmix64 random(seed);
  tiny_moe::tuned_experts tuned(shape.layers);
  std::vector<std::uint16_t> halves;
  for (std::size_t l = 0; l < shape.layers; ++l) {
    const auto first = random.below(4);
    for (auto e = first; e < shape.experts; e += 4) {
      tuned[l].push_back(static_cast<expert_id>(e));
      for (const auto& tensor : weights().expert_bytes(l, e)) {
        const auto at = halves.size();
        halves.resize(at + tensor.size() / sizeof(std::uint16_t));
        std::memcpy(&halves[at], tensor.data(), tensor.size());
        for (auto i = at; i < halves.size(); ++i)
          halves[i] = static_cast<std::uint16_t>(halves[i] ^ (random.next() & 1U));
      }
    }
  }
  return {shape, "adapter", std::move(tuned), std::move(halves)};
}
const std::vector<tiny_moe::adapter_weights>& made_adapters() {
  static const std::vector<tiny_moe::adapter_weights> made = [] {
    std::vector<tiny_moe::adapter_weights> out;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) out.push_back(perturbed(seed));
    return out;
  }();
  return made;
}
tiny_moe::adapter_source first_adapters(std::size_t count) {
  std::vector<const tiny_moe::adapter_weights*> out;
  for (const auto& one : made_adapters())
    if (out.size() < count) out.push_back(&one);
  return tiny_moe::source_of(out);
}

/// Sequences of one length that decode the same token repeatedly.
class decoding_batch {
 public:
  static constexpr std::size_t sequences = 32;

  /// The i-th sequence uses adapter i % adapters + 1; 0: all use the base model.
  decoding_batch(tiny_moe::expert_provider& provider, std::size_t virtual_experts,
                 std::size_t adapters)
      : pool_(weights().config(), {.block_tokens = 16, .blocks = 2 * sequences, .reuse = false}),
        decoder_(weights(), provider, pool_,
                 {.max_positions = prompt + 1,
                  .max_tokens = sequences * prompt,
                  .virtual_experts = virtual_experts}) {
    std::vector<tiny_moe::token_row> rows;
    for (std::size_t s = 0; s < sequences; ++s) {
      const auto adapter = adapters == 0 ? tiny_moe::base_model : 1 + s % adapters;
      const auto sequence = pool_.open(prompt + 1, static_cast<tiny_moe::adapter_id>(adapter));
      for (std::size_t t = 0; t < prompt; ++t) rows.push_back({sequence, byte_of_text(7 * s + t)});
      next_.push_back({sequence, byte_of_text(7 * s + prompt)});
    }
    (void)decoder_.forward(rows, tiny_moe::request_kind::prefill);
  }
  decoding_batch(const decoding_batch&) = delete;
  decoding_batch& operator=(const decoding_batch&) = delete;

  void step() {
    benchmark::DoNotOptimize(decoder_.forward(next_, tiny_moe::request_kind::decode).data());
    for (const auto& row : next_) pool_.truncate(row.sequence, prompt);
  }

 private:
  static constexpr std::size_t prompt = 16;
  static std::uint8_t byte_of_text(std::size_t at) {
    constexpr std::string_view words =
        "def add(a, b): return a + b\n17 + 25 = 42. The house of the ledger stood by the river; ";
    return static_cast<std::uint8_t>(words[at % words.size()]);
  }

  tiny_moe::kv_pool pool_;
  tiny_moe::batch_engine decoder_;
  std::vector<tiny_moe::token_row> next_;
};

void time_steps(benchmark::State& state, std::size_t adapters) {
  tiny_moe::registered_adapters served(weights(), first_adapters(adapters));
  for (tiny_moe::adapter_id a = 1; a <= adapters; ++a)
    if (served.acquire(a) != adapter_status::ok)
      return state.SkipWithError("an adapter was not loaded");
  tiny_moe::resident_experts base(weights());
  decoding_batch with_adapters(served, served.virtual_experts(), adapters);
  decoding_batch alone(base, 0, 0);
  const auto before = served.stats();
  double all_steps = 0;
  double all_base_steps = 0;
  for (auto _ : state) {
    const auto begin = clock_type::now();
    with_adapters.step();
    const auto served_at = clock_type::now();
    alone.step();
    const auto end = clock_type::now();
    state.SetIterationTime(seconds(served_at - begin));
    all_steps += seconds(served_at - begin);
    all_base_steps += seconds(end - served_at);
  }
  const auto& after = served.stats();
  const auto ratio = [](std::uint64_t part, std::uint64_t whole) {
    return static_cast<double>(part) / static_cast<double>(whole);
  };
  state.counters["step_over_base"] = all_steps / all_base_steps;
  state.counters["weight_bytes_over_base"] = ratio(after.virtual_experts - before.virtual_experts,
                                                   after.base_experts - before.base_experts);
  state.counters["reroute_share"] =
      static_cast<double>(after.reroute_ns - before.reroute_ns) * 1e-9 / all_steps;
}

void bench_steps() {
  for (const std::size_t adapters : {1U, 5U, 10U, 20U}) {
    const auto name = "BM_Step/adapters:" + std::to_string(adapters) +
                      "/batch:" + std::to_string(decoding_batch::sequences);
    benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
      time_steps(state, adapters);
    })->UseManualTime();
  }
}
#else
void bench_steps() {}  // the example engine is not built
#endif

}  // namespace

int main(int count, char** arguments) {
  bench_loads();
  bench_steps();
  benchmark::Initialize(&count, arguments);
  if (benchmark::ReportUnrecognizedArguments(count, arguments)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
