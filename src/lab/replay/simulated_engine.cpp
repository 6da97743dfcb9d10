// SPDX-License-Identifier: Apache-2.0
#include "lab/replay/simulated_engine.hpp"

#include <algorithm>
#include <utility>

#include "lab/replay/registry.hpp"

namespace hotset::lab {

namespace {

std::unique_ptr<clock_backend> made(const engine_clock& clock, const geometry& shape) {
  const clock_backend::config setup{.link = clock.link, .shape = shape};
  if (clock.back.way == write_back_way::none) return std::make_unique<clock_backend>(setup);
  return std::make_unique<write_back_clock>(setup, clock.back);
}

bool releases(const look_ahead& ahead, release_point when) noexcept {
  return ahead.pre_evictor != nullptr && ahead.pre_evictor->options().release == when;
}

}  // namespace

void gate_mass::take(const routing_view& view, const look_ahead& ahead, id_view<expert_id> computed,
                     std::size_t token, std::size_t top_k) noexcept {
  const auto weights = ahead.router_weights.empty() ? view.weights : ahead.router_weights;
  const auto chosen = view.chosen();
  if (weights.size() != chosen.size() || computed.size() != chosen.size()) return;
  const auto first = token * top_k;
  const auto used = computed.subspan(first, top_k);
  // Kernels get the chosen ids themselves, so none is missed.
  const bool whole = computed.data() == chosen.data();
  for (auto k = first; k < first + top_k; ++k) {
    routed += double{weights[k]};
    if (!whole && std::ranges::find(used, chosen[k]) == used.end()) lost += double{weights[k]};
  }
}

simulated_engine::simulated_engine(erased_pager decisions, const engine_clock& clock,
                                   const visit_costs& costs, const slot_cache_config& setup)
    : backend_(made(clock, decisions.shape())),
      costs_(costs),
      cache_(std::move(decisions), *backend_, setup),
      visit_(cache_.make_visit()),
      victims_(dynamic_cast<write_back_clock*>(backend_.get())),
      transient_(*backend_, static_cast<slot_id>(cache_.pager().layout().slots()),
                 costs.transient) {}

status simulated_engine::warm(std::span<const expert_key> keys) {
  const auto done = cache_.warm(keys, stream_);
  stream_.issue_at(backend_->now());
  stream_.synchronise();
  return done;
}

void simulated_engine::open_step(const routing_view& view, look_ahead& ahead) {
  stream_.synchronise();
  backend_->advance(stream_.host());
  cache_.open_step(view);
  if (ahead.expected.depth == 0) return;
  prefetch(view, {.layer = view.layer, .step = view.step, .kind = view.kind}, ahead);
}

status simulated_engine::visit(const routing_view& view, look_ahead& ahead) {
  run_gate();
  backend_->advance(stream_.host());
  freed_for_ = before_layers;
  transient_.begin_visit();
  const auto begin = stream_.now();
  if (releases(ahead, release_point::gate)) pre_evict(view, ahead);
  if (parts_ != nullptr) {
    const auto located = cache_.pager().located(view.layer);
    parts_->count(view, [&](expert_id e) { return located[index_of(e)] != no_slot; });
  }
  const auto done = cache_.serve(view, stream_, visit_, [&](const visit_group& group) {
    if (decisions_ != nullptr) decisions_->on_plan(group.plan());
    if (group.is_last()) prefetch(view, group.context(), ahead);
    for (const auto token : group.tokens())
      mass_.take(view, ahead, group.routed(), token, cache_.pager().shape().ranks());
    compute(group.plan(), begin);
  });
  if (!releases(ahead, release_point::end)) return done;
  stream_.synchronise();
  pre_evict(view, ahead);
  return done;
}

residency_view simulated_engine::residents(layer_id layer) const {
  const auto& pages = cache_.pager();
  residency_view out{pages.located(layer)};
  if (layer == freed_for_)
    out.free_slots =
        static_cast<std::int32_t>(pages.free_slots(pages.layout().pool_of_layer(layer)));
  return out;
}

void simulated_engine::finish() noexcept {
  (void)cache_.drain();
  backend_->finish();
}

void simulated_engine::watch(decision_log* decisions, timeline* times,
                             part_counts* parts) noexcept {
  decisions_ = decisions;
  parts_ = parts;
  times_ = times;
  backend_->watch(times);
}

void simulated_engine::prefetch(const routing_view& view, const visit_context& context,
                                look_ahead& ahead) {
  // Before a step's first layer only prefetchers with probabilities can propose.
  if (ahead.prefetcher != nullptr &&
      (view.layer >= 0 || ahead.prefetcher->facts().needs == forecast_need::probabilities))
    ahead.proposed = ahead.prefetcher->propose(view, ahead.expected, ahead.requests);
  else if (ahead.expected.depth == 0)
    return;
  (void)cache_.prefetch(context, ahead.requests.first(ahead.proposed), stream_, ahead.expected);
}

/// Frees slots for the layer after the view's.
void simulated_engine::pre_evict(const routing_view& view, look_ahead& ahead) {
  auto& pages = cache_.pager();
  const auto next = view.layer + 1;
  if (next == pages.shape().layers || ahead.expected.depth == 0) return;
  const visit_context running{.layer = view.layer, .step = view.step, .kind = view.kind};
  pages.expect(running, ahead.expected);
  const auto wanted = ahead.pre_evictor->decide(ahead.expected, {pages.located(next)});
  const visit_context coming{.layer = next,
                             .pool = pages.layout().pool_of_layer(next),
                             .step = view.step,
                             .kind = view.kind};
  if (victims_ == nullptr)
    (void)cache_.pre_evict(coming, wanted.free, wanted.spared);
  else
    (void)pre_evict_back(pages, *victims_, coming, wanted.free, wanted.spared, stream_);
  freed_for_ = next;
}

void simulated_engine::run_gate() noexcept {
  stream_.synchronise();
  if (costs_.gate == 0) return;
  stream_.run(costs_.gate);
  stream_.synchronise();
}

void simulated_engine::run_arithmetic(ticks time, const visit_context& visit, std::size_t tokens) {
  const auto from = std::max(stream_.now(), stream_.host());
  stream_.run(time);
  if (times_ != nullptr) times_->on_compute(from, stream_.now(), visit, tokens);
}

/// Streams the experts that the plan leaves on the host; returns the number without a transient slot.
std::size_t simulated_engine::left_on_host(const visit_plan& plan) {
  std::size_t left = 0;
  for (std::size_t i = 0; i < plan.experts().size(); ++i)
    if (plan.services()[i] == service::host &&
        transient_.stream_in({plan.context().layer, plan.experts()[i]}, {}, stream_) == no_slot)
      ++left;
  return left;
}

void simulated_engine::compute(const visit_plan& plan, ticks begin) {
  const auto tokens = plan.tokens().size();
  const auto on_host = plan.host_count() == 0 ? 0 : left_on_host(plan);
  const auto from = std::max(stream_.now(), stream_.host());
  const auto device_ends = from + costs_.per_visit + costs_.per_token * tokens;
  const auto host_ends = begin + costs_.per_host_expert * on_host;
  run_arithmetic(std::max(device_ends, host_ends) - from, plan.context(), tokens);
  if (plan.host_count() != 0) transient_.record_readers(stream_);
}

std::unique_ptr<simulated_engine> make_engine(const pager_request& request,
                                              const policy_knowledge& knowledge,
                                              const engine_clock& clock, const visit_costs& costs,
                                              const slot_cache_config& setup) {
  return std::make_unique<simulated_engine>(make_pager(request, knowledge), clock, costs, setup);
}

}  // namespace hotset::lab
