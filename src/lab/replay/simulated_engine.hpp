// SPDX-License-Identifier: Apache-2.0
#pragma once
/// An engine on a virtual clock: the library's own slot cache over a link that takes time, and arithmetic that does.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hotset/cache/slot_cache.hpp"
#include "hotset/core/forecast.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/paging/any_pager.hpp"
#include "hotset/paging/pager.hpp"
#include "hotset/policy/any/any_prefetch_policy.hpp"
#include "hotset/prefetch/active_evict.hpp"
#include "hotset/transfer/memory/transient_slots.hpp"
#include "lab/replay/clock_backend.hpp"
#include "lab/replay/clock_stream.hpp"
#include "lab/replay/link_model.hpp"
#include "lab/replay/write_back_clock.hpp"

namespace hotset::lab {

/// What a visit costs besides its copies. Units: nanoseconds.
struct visit_costs {
  ticks gate = 0;             ///< from the end of the visit before until the experts are known
  ticks per_visit = 0;        ///< of each group of tokens
  ticks per_token = 0;        ///< of each token of a group
  ticks per_host_expert = 0;  ///< of each expert that the host computes, beside the device
  /// Slots beside the cache's, through which experts come that the host would compute.
  std::size_t transient = 0;
};

/// The link of an engine. Its clock has the shape of the engine's pager.
struct engine_clock {
  link_model link = link_model::instant();
  write_back_config back{};
};

/// What an engine looks ahead with, visit by visit.
struct look_ahead {
  any_prefetch_policy* prefetcher = nullptr;
  active_evict* pre_evictor = nullptr;
  forecast expected{};                     ///< of the layers after the view's
  std::span<prefetch_request> requests{};  ///< scratch for what the prefetcher proposes
  std::size_t proposed = 0;                ///< written: so many of them
  /// The gate weights of view.chosen() where a routing policy has changed the view's. Empty: the view's.
  std::span<const float> router_weights{};

  [[nodiscard]] std::span<const float> weights_of(const routing_view& view) const noexcept {
    return router_weights.empty() ? view.weights : router_weights;
  }
};

/// The gate weight that the routers gave, and what of it was computed with nothing. Sums over tokens and layers.
struct gate_mass {
  double routed = 0;
  double lost = 0;

  /// One token of a visit. `computed`: the ids that a kernel was given for the visit's places.
  void take(const routing_view& view, std::span<const float> weights, id_view<expert_id> computed,
            std::size_t token, std::size_t top_k) noexcept {
    const auto chosen = view.chosen();
    if (weights.size() != chosen.size() || computed.size() != chosen.size()) return;
    const auto first = token * top_k;
    const auto used = computed.subspan(first, top_k);
    const bool whole = computed.data() == chosen.data();  // nothing stands between: no id is missed
    for (auto k = first; k < first + top_k; ++k) {
      routed += double{weights[k]};
      if (!whole && std::ranges::find(used, chosen[k]) == used.end()) lost += double{weights[k]};
    }
  }
};

/// Is told of the arithmetic of each group of a visit, in order.
class compute_observer {
 public:
  virtual ~compute_observer() = default;
  virtual void on_compute(ticks begin, ticks end, const visit_context& visit,
                          std::size_t tokens) = 0;
};

/// The order of a visit is that of SpecMD's Algorithm 1: (routing, by the caller,) cache management, submission of
/// prefetches, while the experts run. The next visit's gate starts when this one's arithmetic has ended.
class simulated_engine {
 public:
  simulated_engine() = default;
  simulated_engine(const simulated_engine&) = delete;
  simulated_engine& operator=(const simulated_engine&) = delete;
  virtual ~simulated_engine() = default;

  /// Before the first step: fills free slots with `keys`, least wanted first, and lets the time for it pass.
  virtual status warm(std::span<const expert_key> keys) = 0;
  /// Before a step's first gate: what is expected of its first layers. Pre: view.layer == before_layers.
  virtual void open_step(const routing_view& view, look_ahead& ahead) = 0;
  virtual status visit(const routing_view& view, look_ahead& ahead) = 0;
  /// With the free slots, where the engine has freed some for the layer's next visit.
  [[nodiscard]] virtual residency_view residents(layer_id layer) const = 0;
  [[nodiscard]] virtual pager_stats stats() const = 0;
  [[nodiscard]] virtual prefetch_queue_stats queue() const = 0;
  [[nodiscard]] virtual std::uint64_t decision_hash() const = 0;
  /// The time now, and how much of it the arithmetic waited for copies.
  [[nodiscard]] virtual ticks now() const = 0;
  [[nodiscard]] virtual ticks blocked() const = 0;
  /// Experts that were streamed through the slots beside the cache's.
  [[nodiscard]] virtual std::uint64_t streamed() const = 0;
  /// Time that the link carried something; all of what was submitted is let arrive first.
  [[nodiscard]] virtual ticks link_busy() = 0;
  /// The same of the way back, and its bytes, where victims are copied back.
  [[nodiscard]] virtual ticks back_busy() = 0;
  [[nodiscard]] virtual std::uint64_t bytes_back() = 0;
  [[nodiscard]] virtual const gate_mass& mass() const = 0;
  virtual void watch(decision_sink* decisions, link_observer* link, compute_observer* compute) = 0;
};

/// What engines over a pager of the library share.
template <class Pager>
class engine_over : public simulated_engine {
 public:
  [[nodiscard]] residency_view residents(layer_id layer) const override {
    const auto& pages = cache_.pager();
    residency_view out{pages.located(layer)};
    if (layer == freed_for_)
      out.free_slots =
          static_cast<std::int32_t>(pages.free_slots(pages.layout().pool_of_layer(layer)));
    return out;
  }
  [[nodiscard]] pager_stats stats() const override { return cache_.stats(); }
  [[nodiscard]] prefetch_queue_stats queue() const override { return cache_.queue().stats(); }
  [[nodiscard]] std::uint64_t decision_hash() const override {
    return cache_.pager().decision_hash();
  }
  [[nodiscard]] ticks now() const override { return stream_.now(); }
  [[nodiscard]] ticks blocked() const override { return stream_.blocked(); }
  [[nodiscard]] ticks link_busy() override {
    finish();
    return backend_->busy();
  }
  [[nodiscard]] ticks back_busy() override {
    finish();
    return victims_ == nullptr ? 0 : victims_->busy_back();
  }
  [[nodiscard]] std::uint64_t bytes_back() override {
    finish();
    return victims_ == nullptr ? 0 : victims_->bytes_moved_back();
  }
  [[nodiscard]] std::uint64_t streamed() const override { return transient_.streamed(); }
  [[nodiscard]] const gate_mass& mass() const override { return mass_; }
  status warm(std::span<const expert_key> keys) override {
    const auto done = cache_.warm(keys, stream_);
    stream_.issue_at(backend_->now());
    stream_.synchronise();
    return done;
  }
  void open_step(const routing_view& view, look_ahead& ahead) override {
    stream_.synchronise();
    backend_->advance(stream_.host());
    cache_.open_step(view);
    if (ahead.expected.depth == 0) return;
    prefetch(view, {.layer = view.layer, .step = view.step, .kind = view.kind}, ahead);
  }
  void watch(decision_sink* decisions, link_observer* link, compute_observer* compute) override {
    decisions_ = decisions;
    backend_->watch(link);
    arithmetic_ = compute;
  }

 protected:
  engine_over(Pager decisions, const engine_clock& clock, const visit_costs& costs,
              const slot_cache_config& setup)
      : backend_(made(clock, decisions.shape())),
        victims_(dynamic_cast<write_back_clock*>(backend_.get())),
        costs_(costs),
        cache_(std::move(decisions), *backend_, setup),
        visit_(cache_.make_visit()),
        transient_(*backend_, static_cast<slot_id>(cache_.pager().layout().slots()),
                   costs.transient) {}

  void finish() noexcept {
    (void)cache_.drain();
    backend_->finish();
  }
  static std::unique_ptr<clock_backend> made(const engine_clock& clock, const geometry& shape) {
    const clock_backend::config setup{.link = clock.link, .shape = shape};
    if (clock.back.way == write_back_way::none) return std::make_unique<clock_backend>(setup);
    return std::make_unique<write_back_clock>(setup, clock.back);
  }
  /// Policies hear of the forecast even where nothing is prefetched.
  void prefetch(const routing_view& view, const visit_context& context, look_ahead& ahead) {
    // Before a step's first layer only forecasts have an answer.
    if (ahead.prefetcher != nullptr &&
        (view.layer >= 0 || ahead.prefetcher->facts().needs == forecast_need::probabilities))
      ahead.proposed = ahead.prefetcher->propose(view, ahead.expected, ahead.requests);
    else if (ahead.expected.depth == 0)
      return;
    (void)cache_.prefetch(context, ahead.requests.first(ahead.proposed), stream_, ahead.expected);
  }
  /// Slots for the layer after the view's.
  void pre_evict(const routing_view& view, look_ahead& ahead) {
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
  /// The gate of a visit: then its experts are known.
  void run_gate() noexcept {
    stream_.synchronise();
    if (costs_.gate == 0) return;
    stream_.run(costs_.gate);
    stream_.synchronise();
  }

  // The parts of one engine, named as its own: only the two engines of the simulator derive from this.
  // NOLINTBEGIN(readability-identifier-naming)
  clock_stream stream_;
  std::unique_ptr<clock_backend> backend_;
  write_back_clock* victims_;  // the same, where it copies victims back
  visit_costs costs_;
  slot_cache<Pager, clock_backend> cache_;
  cache_visit visit_;
  transient_slots<clock_backend> transient_;
  decision_sink* decisions_ = nullptr;
  compute_observer* arithmetic_ = nullptr;
  gate_mass mass_;
  /// The layer whose next visit finds slots that were freed for it.
  layer_id freed_for_ = before_layers;
  // NOLINTEND(readability-identifier-naming)
};

/// A visit is an event: all of it is judged, protected and fetched at once.
template <class Pager>
class engine_model final : public engine_over<Pager> {
  using base = engine_over<Pager>;
  using base::arithmetic_, base::backend_, base::cache_, base::costs_, base::decisions_,
      base::freed_for_, base::mass_, base::stream_, base::transient_, base::visit_;

 public:
  engine_model(Pager decisions, const engine_clock& clock, const visit_costs& costs,
               const slot_cache_config& setup = {})
      : base(std::move(decisions), clock, costs, setup) {}

  status visit(const routing_view& view, look_ahead& ahead) override {
    base::run_gate();
    backend_->advance(stream_.host());
    freed_for_ = before_layers;
    transient_.begin_visit();
    const auto begin = stream_.now();
    if (releases(ahead, release_point::gate)) base::pre_evict(view, ahead);
    const auto done = cache_.serve(view, stream_, visit_, [&](const visit_group& group) {
      if (decisions_ != nullptr) decisions_->on_plan(group.plan());
      if (group.is_last()) base::prefetch(view, group.context(), ahead);
      for (const auto token : group.tokens())
        mass_.take(view, ahead.weights_of(view), group.routed(), token,
                   cache_.pager().shape().ranks());
      compute(group.plan(), begin);
    });
    if (!releases(ahead, release_point::end)) return done;
    stream_.synchronise();
    base::pre_evict(view, ahead);
    return done;
  }

 private:
  static bool releases(const look_ahead& ahead, release_point when) noexcept {
    return ahead.pre_evictor != nullptr && ahead.pre_evictor->options().release == when;
  }
  /// Streams what the plan leaves on the host; returns how many find no transient slot.
  std::size_t left_on_host(const visit_plan& plan) {
    std::size_t left = 0;
    for (std::size_t i = 0; i < plan.experts().size(); ++i)
      if (plan.services()[i] == service::host &&
          transient_.stream_in({plan.context().layer, plan.experts()[i]}, {}, stream_) == no_slot)
        ++left;
    return left;
  }
  void compute(const visit_plan& plan, ticks begin) {
    const auto tokens = plan.tokens().size();
    const auto on_host = plan.host_count() == 0 ? 0 : left_on_host(plan);
    const auto from = std::max(stream_.now(), stream_.host());
    stream_.run(costs_.per_visit + costs_.per_token * tokens);
    const auto host_ends = begin + costs_.per_host_expert * on_host;
    if (host_ends > stream_.now()) stream_.run(host_ends - stream_.now());
    if (plan.host_count() != 0) transient_.record_readers(stream_);
    if (arithmetic_ != nullptr)
      arithmetic_->on_compute(from, stream_.now(), plan.context(), tokens);
  }
};

}  // namespace hotset::lab
