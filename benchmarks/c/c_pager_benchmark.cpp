// SPDX-License-Identifier: Apache-2.0
/// A visit through the C interface, compared with the same visit of the same pager in C++: plan and commit, top-8 of
/// 128 experts in 48 layers.

#include <cstddef>
#include <cstdint>
#include <memory>

#include <benchmark/benchmark.h>

#include "hotset.h"
#include "hotset/eviction/lru.hpp"
#include "hotset/paging/pager.hpp"
#include "hotset/registry/policy_registry.hpp"
#include "hotset/trace/visit_sequence.hpp"
#include "lab/traces/synthetic/synthetic.hpp"

namespace {

using namespace hotset;

const visit_sequence& traffic() {
  static const visit_sequence made(synthetic_trace({.layers = 48,
                                                    .experts = 128,
                                                    .top_k = 8,
                                                    .tokens = 512,
                                                    .zipf = 0.8,
                                                    .stickiness = 0.5,
                                                    .seed = 11})
                                       .value());
  return made;
}

/// One iteration replays all visits; the counter `visit` is the time of one.
template <class Serve>
void replay(benchmark::State& state, Serve serve) {
  const auto& visits = traffic();
  for (std::size_t i = 0; i < visits.size(); ++i)
    if (!serve(visits[i])) state.SkipWithError("visit failed");
  for (auto _ : state)
    for (std::size_t i = 0; i < visits.size(); ++i)
      if (!serve(visits[i])) state.SkipWithError("visit failed");
  state.counters["visit"] = benchmark::Counter(
      static_cast<double>(state.iterations()) * static_cast<double>(visits.size()),
      benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

template <class Pager>
void in_cxx(benchmark::State& state, Pager pages) {
  auto plan = pages.make_plan();
  replay(state, [&](const routing_view& view) {
    return pages.plan(view, plan) == status::ok && pages.commit(plan) == status::ok;
  });
}
pool_layout layout_of(const benchmark::State& state) {
  return pool_layout::per_layer(traffic().shape(), state.range(0)).value();
}

/// Composed at compile time: the floor.
void BM_Composed(benchmark::State& state) {
  in_cxx(state, pager<lru>({.layout = layout_of(state)}));
}
/// Policies chosen at run time, as in the C interface.
void BM_Erased(benchmark::State& state) {
  in_cxx(state, erased_pager({.layout = layout_of(state),
                              .eviction = any_eviction_policy::holding<lru>(lru::config{})}));
}
void BM_C(benchmark::State& state) {
  const auto& shape = traffic().shape();
  hotset_pager_options options{};
  options.struct_size = sizeof options;
  options.layers = shape.layers;
  options.experts = shape.experts;
  options.top_k = shape.top_k;
  options.max_tokens = shape.max_tokens_per_visit;
  options.slots = state.range(0);
  options.eviction = "lru";
  hotset_pager* made = nullptr;
  if (hotset_pager_create(&options, &made) != HOTSET_OK) {
    state.SkipWithError(hotset_last_error());
    return;
  }
  const std::unique_ptr<hotset_pager, void (*)(hotset_pager*)> pages(made, hotset_pager_destroy);
  hotset_visit visit{};
  visit.struct_size = sizeof visit;
  hotset_view view{};
  view.struct_size = sizeof view;
  replay(state, [&](const routing_view& of) {
    view.layer = number(of.layer);
    view.step = of.step;
    view.tokens = of.experts.size() / 8;
    view.experts = static_cast<const std::int32_t*>(of.experts.data());
    return hotset_plan(made, &view, &visit) == HOTSET_OK && hotset_commit(made) == HOTSET_OK;
  });
}
BENCHMARK(BM_Composed)->Arg(128)->Arg(16)->Arg(64);
BENCHMARK(BM_Erased)->Arg(128)->Arg(16)->Arg(64);
BENCHMARK(BM_C)->Arg(128)->Arg(16)->Arg(64);

}  // namespace

BENCHMARK_MAIN();
