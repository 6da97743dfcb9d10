// SPDX-License-Identifier: Apache-2.0
/// One layer's pass over all stored expert maps, compared with a plain read of the same bytes; and a whole step's
/// passes, compared with recomputing the prefix in each layer.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#if __has_include(<Eigen/Core>)
#include <Eigen/Core>
#endif

#include "hotset/predict/maps/expert_map_matcher.hpp"
#include "hotset/predict/maps/expert_map_store.hpp"
#include "lab/traces/synthetic/synthetic.hpp"

namespace {

using namespace hotset;

constexpr std::size_t kinds = 200;  // kinds of tokens, whose maps repeat with noise
constexpr std::size_t rounds = 4;   // steps of tokens, used cyclically

/// Maps like those of repetitive text.
class token_maps {
 public:
  token_maps(std::size_t layers, std::size_t experts)
      : experts_(experts), base_(kinds * layers * experts) {
    for (auto& p : base_) {
      const auto u = random_.uniform();
      p = static_cast<float>(std::exp(6.0 * u));
    }
  }
  /// One token's map. Shape: [layers, experts].
  void next(std::span<float> out) {
    const auto of_kind =
        std::span<const float>(base_).subspan(random_.below(kinds) * out.size(), out.size());
    for (std::size_t at = 0; at < out.size(); at += experts_) {
      float sum = 0;
      for (std::size_t i = at; i < at + experts_; ++i) {
        out[i] = of_kind[i] * (0.6F + 0.8F * static_cast<float>(random_.next() >> 40U) * 0x1p-24F);
        sum += out[i];
      }
      for (std::size_t i = at; i < at + experts_; ++i) out[i] /= sum;
    }
  }

 private:
  std::size_t experts_;
  splitmix64 random_{5};
  std::vector<float> base_;
};

struct shape_of_store {
  std::int32_t layers;
  std::int32_t experts;
  std::uint32_t maps;
  map_storage storage;
  friend bool operator==(const shape_of_store&, const shape_of_store&) = default;
};

/// A full store, and tokens to match with it. The last one is cached, because stores are large.
struct scene {
  explicit scene(const shape_of_store& of)
      : shape(of),
        store(expert_map_store::create({.layers = of.layers, .experts = of.experts, .top_k = 1},
                                       {.capacity = of.maps, .storage = of.storage})
                  .value()) {
    token_maps maps(store.layers(), store.experts());
    std::vector<float> map(store.layers() * store.experts());
    const std::int32_t token = 1;
    for (std::uint32_t i = 0; i < of.maps; ++i) {
      maps.next(map);
      if (store.insert(map, std::span(&token, 1)) != status::ok) return;
    }
    constexpr std::size_t tokens = 8;
    rows.resize(rounds * store.layers() * tokens * store.experts());
    for (std::size_t r = 0; r < rounds; ++r)
      for (std::size_t t = 0; t < tokens; ++t) {
        maps.next(map);
        for (std::size_t l = 0; l < store.layers(); ++l)
          std::copy_n(&map[l * store.experts()], store.experts(),
                      &rows[((r * store.layers() + l) * tokens + t) * store.experts()]);
      }
  }
  [[nodiscard]] std::span<const float> of(std::size_t round, std::size_t layer,
                                          std::size_t tokens) const {
    return std::span(rows).subspan((round % rounds * store.layers() + layer) * 8 * store.experts(),
                                   tokens * store.experts());
  }
  /// Bytes that one layer's pass reads once.
  [[nodiscard]] std::size_t bytes() const {
    const auto places = store.blocks() * map_kernels::lanes;
    return store.blocks() * store.block_bytes() +
           places * (shape.storage == map_storage::int8 ? 8 : 4);
  }
  shape_of_store shape;
  expert_map_store store;
  std::vector<float> rows;  // [rounds, layers, 8, experts]

  static scene& get(const shape_of_store& of) {
    static std::unique_ptr<scene> last;
    if (!last || last->shape != of) {
      last.reset();
      last = std::make_unique<scene>(of);
    }
    return *last;
  }
};

std::uint64_t sum_of(const std::byte* at, std::size_t bytes) {
  std::uint64_t out = 0;
  detail::in_vectors(best_vector_level(), [&] {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < bytes / 8; ++i)
      sum += reinterpret_cast<const std::uint64_t*>(at)[i];
    out = sum;
  });
  return out;
}
/// The floor: sums the bytes of a pass.
std::uint64_t read(const scene& s, std::size_t layer) {
  const auto slice = s.store.slice(layer, 0, s.store.blocks());
  const auto places = s.store.blocks() * map_kernels::lanes;
  auto sum = sum_of(slice.maps, s.store.blocks() * s.store.block_bytes());
  sum +=
      sum_of(reinterpret_cast<const std::byte*>(s.store.inverse_norms(layer).data()), places * 4);
  if (slice.steps != nullptr)
    sum += sum_of(reinterpret_cast<const std::byte*>(slice.steps), places * 4);
  return sum;
}

/// Processor time of the thread: other programs of a shared machine do not count.
double seconds_of_work() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}
double seconds_since(double begin) { return seconds_of_work() - begin; }
double median(std::vector<double>& values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Layers in turn; between two passes, a plain read of the layer furthest from them.
void BM_Layer(benchmark::State& state, const shape_of_store& of, std::size_t tokens) {
  auto& s = scene::get(of);
  auto made = expert_map_matcher::create(s.store, tokens);
  if (!made || s.rows.empty()) return state.SkipWithError("no store");
  auto& matcher = *made;
  const auto layers = s.store.layers();
  std::size_t visit = 0;
  std::vector<double> passes;
  std::vector<double> reads;
  for (auto _ : state) {
    const auto layer = visit % layers;
    auto begin = seconds_of_work();
    benchmark::DoNotOptimize(read(s, (layer + layers / 2) % layers));
    reads.push_back(seconds_since(begin));
    begin = seconds_of_work();
    status done = status::ok;
    if (layer == 0) done = matcher.begin(s.store, tokens);
    if (done == status::ok)
      done = matcher.advance(s.store, layer, s.of(visit / layers, layer, tokens));
    const auto seconds = seconds_since(begin);
    state.SetIterationTime(seconds);
    passes.push_back(seconds);
    if (done != status::ok || matcher.best(s.store, 0).place == expert_map_store::none)
      return state.SkipWithError("no match");
    ++visit;
  }
  const auto pass = median(passes);
  const auto plain = median(reads);
  const auto bytes = static_cast<double>(s.bytes());
  state.counters["us"] = 1e6 * pass;
  state.counters["bytes/s"] = bytes / pass;
  state.counters["plain_read_bytes/s"] = bytes / plain;
  state.counters["of_plain_read"] = plain / pass;
  state.counters["MB"] = bytes * 1e-6;
}

#if defined(EIGEN_CORE_H)
/// A whole step of one token: accumulated, and with the prefix recomputed.
void BM_Step(benchmark::State& state, const shape_of_store& of) {
  using matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  auto& s = scene::get(of);
  auto made = expert_map_matcher::create(s.store, 1);
  if (!made || s.rows.empty()) return state.SkipWithError("no store");
  auto& matcher = *made;
  const auto layers = s.store.layers();
  const auto experts = s.store.experts();
  matrix maps(of.maps, static_cast<Eigen::Index>(layers * experts));
  for (std::uint32_t m = 0; m < of.maps; ++m)
    for (std::size_t l = 0; l < layers; ++l)
      s.store.read_row(m, l, std::span(maps.row(m).data() + l * experts, experts));
  Eigen::VectorXf map(static_cast<Eigen::Index>(layers * experts));
  Eigen::VectorXf scores(of.maps);
  std::size_t round = 0;
  std::vector<double> steps;
  std::vector<double> prefixes;
  for (auto _ : state) {
    auto begin = seconds_of_work();
    std::vector<std::uint32_t> found;
    if (matcher.begin(s.store, 1) != status::ok) return state.SkipWithError("no step");
    for (std::size_t l = 0; l < layers; ++l) {
      if (matcher.advance(s.store, l, s.of(round, l, 1)) != status::ok)
        return state.SkipWithError("no layer");
      found.push_back(matcher.best(s.store, 0).place);
    }
    steps.push_back(seconds_since(begin));
    state.SetIterationTime(steps.back());
    begin = seconds_of_work();
    for (std::size_t l = 0; l < layers; ++l) {
      const auto width = static_cast<Eigen::Index>((l + 1) * experts);
      std::ranges::copy(s.of(round, l, 1), map.data() + l * experts);
      const Eigen::Map<const Eigen::VectorXf> norms(s.store.inverse_norms(l).data(), of.maps);
      scores.noalias() = maps.leftCols(width) * map.head(width);
      scores.array() *= norms.array();
      Eigen::Index best = 0;
      const float most = scores.maxCoeff(&best);
      if (scores[found[l]] < most * (1 - 1e-5F)) return state.SkipWithError("another best map");
    }
    prefixes.push_back(seconds_since(begin));
    ++round;
  }
  state.counters["ms"] = 1e3 * median(steps);
  state.counters["prefix_ms"] = 1e3 * median(prefixes);
  state.counters["times_faster"] = median(prefixes) / median(steps);
}
#endif

constexpr std::pair<std::int32_t, std::int32_t> models[] = {{32, 8}, {16, 64}, {24, 60}, {48, 128}};

}  // namespace

int main(int count, char** arguments) {
  for (const auto& [layers, experts] : models)
    for (const std::uint32_t maps : {1000U, 10000U, 50000U})
      for (const auto& [storage, name] :
           {std::pair(map_storage::fp32, "fp32"), std::pair(map_storage::fp16, "fp16"),
            std::pair(map_storage::int8, "int8")}) {
        const shape_of_store of{layers, experts, maps, storage};
        const auto text = std::string(name) + "/layers:" + std::to_string(layers) +
                          "/experts:" + std::to_string(experts) + "/maps:" + std::to_string(maps);
        for (const std::size_t tokens : {1U, 8U})
          benchmark::RegisterBenchmark(
              ("BM_Layer/" + text + "/tokens:" + std::to_string(tokens)).c_str(),
              [of, tokens = tokens](benchmark::State& state) { BM_Layer(state, of, tokens); })
              ->UseManualTime();
#if defined(EIGEN_CORE_H)
        // The prefix has single precision.
        if (storage != map_storage::fp16)
          benchmark::RegisterBenchmark(("BM_Step/" + text).c_str(),
                                       [of](benchmark::State& state) { BM_Step(state, of); })
              ->UseManualTime()
              ->Unit(benchmark::kMillisecond);
#endif
      }
  benchmark::Initialize(&count, arguments);
  if (benchmark::ReportUnrecognizedArguments(count, arguments)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
