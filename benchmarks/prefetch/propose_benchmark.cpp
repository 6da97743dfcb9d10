// SPDX-License-Identifier: Apache-2.0
/// One visit observed and requests for later ones proposed, step after step through all layers.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "hotset/policy/any/any_prefetch_policy.hpp"
#include "hotset/prefetch/next_layer_top_k.hpp"
#include "hotset/prefetch/no_prefetch.hpp"
#include "hotset/prefetch/noisy_oracle.hpp"
#include "hotset/prefetch/popular.hpp"
#include "hotset/prefetch/previous_step.hpp"
#include "hotset/prefetch/score_threshold.hpp"
#include "lab/traces/synthetic/synthetic.hpp"

namespace {

using namespace hotset;

constexpr std::int32_t layers = 48;
constexpr std::size_t rounds = 32;  // steps of synthetic routing, used cyclically

/// Sticky, skewed routing, and predictions that rank the true experts high.
struct routing {
  routing(const geometry& shape, std::size_t tokens)
      : ids_per_visit(tokens * static_cast<std::size_t>(shape.top_k)),
        scores_per_visit(tokens * static_cast<std::size_t>(shape.experts)) {
    splitmix64 random(5);
    std::vector<expert_id> order(static_cast<std::size_t>(shape.experts));
    std::iota(order.begin(), order.end(), expert_id{0});
    for (std::size_t visit = 0; visit < rounds * layers; ++visit)
      for (std::size_t t = 0; t < tokens; ++t) {
        // Lower ids are drawn more often.
        for (std::size_t k = 0; k < static_cast<std::size_t>(shape.top_k); ++k) {
          const auto left = order.size() - k;
          std::swap(order[k], order[k + std::min(random.below(left), random.below(left))]);
        }
        ids.insert(ids.end(), order.begin(), order.begin() + shape.top_k);
        std::vector<float> row(order.size());
        float sum = 0.0F;
        for (std::size_t e = 0; e < row.size(); ++e) {
          const auto u = static_cast<float>(random.uniform());
          row[e] = u * u * u;
          if (std::find(order.begin(), order.begin() + shape.top_k, static_cast<expert_id>(e)) !=
              order.begin() + shape.top_k)
            row[e] += 0.5F;
          sum += row[e];
        }
        for (auto& p : row) scores.push_back(p / sum);
        std::sort(order.begin(), order.end());
      }
  }
  [[nodiscard]] std::span<const expert_id> experts(std::size_t visit) const {
    return std::span(ids).subspan(visit % (rounds * layers) * ids_per_visit, ids_per_visit);
  }
  [[nodiscard]] std::span<const float> predicted(std::size_t visit) const {
    return std::span(scores).subspan(visit % (rounds * layers) * scores_per_visit,
                                     scores_per_visit);
  }
  std::size_t ids_per_visit;
  std::size_t scores_per_visit;
  std::vector<expert_id> ids;
  std::vector<float> scores;
};

template <class P>
void BM_Propose(benchmark::State& state, const typename P::config& options) {
  const auto tokens = static_cast<std::size_t>(state.range(2));
  const geometry shape{.layers = layers,
                       .experts = static_cast<std::int32_t>(state.range(0)),
                       .top_k = static_cast<std::int32_t>(state.range(1)),
                       .max_tokens_per_visit = static_cast<std::int32_t>(tokens)};
  const routing made(shape, tokens);
  P policy(shape, options);
  std::vector<prefetch_request> out(policy.most_requests());
  routing_view view;
  forecast expected;
  expected.depth = 1;
  std::size_t visit = 0;
  const auto propose = [&] {
    view.layer = static_cast<layer_id>(visit % layers);
    view.step = visit / layers;
    view.experts = made.experts(visit);
    expected.probabilities = made.predicted(visit + 1);
    expected.truth = made.experts(visit + 1);
    ++visit;
    expected.truth_layer = static_cast<layer_id>(visit % layers);
    expected.truth_step = visit / layers;
    policy.observe(view);
    return policy.propose(view, expected, out);
  };
  while (visit < rounds * layers) propose();  // until every layer has a past
  std::size_t requests = 0;
  for (auto _ : state) {
    requests += propose();
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  }
  if (requests == 0 && policy.most_requests() > 0 && state.iterations() > 1)
    state.SkipWithError("no request");
  state.counters["requests_per_visit"] =
      benchmark::Counter(static_cast<double>(requests), benchmark::Counter::kAvgIterations);
}

template <class P>
void bench(const char* name, const typename P::config& options = {}) {
  auto* const b = benchmark::RegisterBenchmark(
      name, [options](benchmark::State& state) { BM_Propose<P>(state, options); });
  b->ArgNames({"experts", "top_k", "tokens"});
  for (const std::int64_t tokens : {1, 8}) b->Args({128, 8, tokens});
  b->Args({512, 8, 1});
}

}  // namespace

int main(int count, char** arguments) {
  bench<no_prefetch>("BM_Propose/no_prefetch");
  bench<next_layer_top_k>("BM_Propose/next_layer_top_k");
  bench<score_threshold>("BM_Propose/score_threshold");
  bench<previous_step>("BM_Propose/previous_step");
  bench<popular>("BM_Propose/popular");
  bench<noisy_oracle>("BM_Propose/noisy_oracle", {.precision = 0.8, .recall = 0.8});
  bench<any_prefetch_policy>("BM_Propose/any_prefetch_policy",
                             any_prefetch_policy::holding<next_layer_top_k>());
  benchmark::Initialize(&count, arguments);
  if (benchmark::ReportUnrecognizedArguments(count, arguments)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
