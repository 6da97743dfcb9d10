// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Experts in a slot cache: the code that an engine writes to use hotset.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "hotset/cache/live_view.hpp"
#include "hotset/cache/slot_cache.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/memory_budget.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/core/status.hpp"
#include "hotset/paging/pager.hpp"
#include "hotset/policy/any/any_miss_policy.hpp"
#include "hotset/policy/policy_config.hpp"
#include "hotset/transfer/host_backend.hpp"
#include "hotset/transfer/host_stream.hpp"
#include "hotset/transfer/memory/host_slot_bank.hpp"
#include "hotset/transfer/memory/transient_slots.hpp"
#include "hotset/transfer/memory_expert_source.hpp"
#include "lab/replay/emulated_link_backend.hpp"
#include "lab/replay/registry.hpp"
#include "tiny_moe/experts/adapter_experts.hpp"
#include "tiny_moe/experts/expert_library.hpp"
#include "tiny_moe/experts/expert_pool.hpp"
#include "tiny_moe/model/expert_provider.hpp"
#include "tiny_moe/model/gate_hook.hpp"
#include "tiny_moe/model/model.hpp"

namespace tiny_moe {

/// The model's geometry. max_tokens: of one visit; 0: the model's max_positions.
[[nodiscard]] hotset::geometry geometry_of(const model& weights, std::size_t max_tokens = 0);
/// Geometry with the experts of adapters: a key is a layer and a virtual expert.
[[nodiscard]] hotset::geometry geometry_of(const model& weights, const adapter_experts& adapters,
                                           std::size_t max_tokens = 0);

/// Slots for a budget: "25%" of the experts in the scope, "96" slots (in per-layer scope: per layer), or "1500KiB"
/// for all layers together. max_tokens: of one visit. With a library of several precisions, the bytes of the slots at
/// the highest precision are divided: each share becomes slots of its own size.
/// Errors: hotset::lab::usage_error; hotset::lab::infeasible_error if a token could not be served.
[[nodiscard]] hotset::pool_layout layout_of(const hotset::geometry& shape,
                                            hotset::cache_scope scope, std::string_view budget,
                                            std::span<const double> shares = {});
[[nodiscard]] hotset::pool_layout layout_of(const model& weights, hotset::cache_scope scope,
                                            std::string_view budget, std::size_t max_tokens = 0,
                                            const expert_library* library = nullptr,
                                            std::span<const double> shares = {});

struct paging_config {
  hotset::pool_layout layout;
  hotset::visit_split split = hotset::visit_split::by_token;
  /// caller: every group is computed at once. worker: on a separate thread, like a device stream, so that the copies
  /// of one group overlap with the arithmetic of another.
  hotset::host_stream::mode stream = hotset::host_stream::mode::caller;
  /// Copies at several precisions, which outlive the provider; none: the file's halves.
  const expert_library* library = nullptr;
  /// Experts of the model and of adapters, which outlive the provider; the layout then has their geometry. Excludes a
  /// library, and policies that use the router's scores.
  const adapter_experts* adapters = nullptr;
  gate_config gate{};
  hotset::prefetch_guard guard = hotset::prefetch_guard::named;
  std::optional<hotset::any_miss_policy::config> miss{};  ///< none: fetch
  std::optional<hotset::link_model::config> link{};       ///< none: as fast as memory
  /// attempts: copies of a group are tried this often, then the group is computed from the host copy.
  hotset::slot_cache_config cache{.attempts = 3};
  /// Slots beside the layout's: experts without a cache slot are copied through them. They are computed from the host
  /// copy only if all of these slots are taken. Excludes a library and `memory`.
  std::size_t transient = 0;
  /// Budget for the memory of slots; it outlives the provider. The layout is then per layer, with the maximum number
  /// of slots, and no slot exists until `slots()->open`. None: all slots, for the provider's life.
  hotset::memory_budget* memory = nullptr;
  /// Sees copies, waits and computations; it outlives the provider. Null: none.
  hotset::live_view* view = nullptr;
};

/// Places of all experts in the mapped file: gate, up, down.
[[nodiscard]] hotset::memory_expert_source source_of(const model& weights);
/// Errors: hotset::lab::usage_error for transient slots with a configuration that does not support them.
[[nodiscard]] hotset::host_slot_bank bank_of(const model& weights, const paging_config& config);

/// Errors: hotset::lab::usage_error for options that exclude adapters.
void check_adapters(const paging_config& config);

/// Source of copies: the file's experts, a library's, or those with adapters.
class expert_copies {
 public:
  expert_copies(const model& weights, const paging_config& config)
      : file_(source_of(weights)), library_(config.library), adapters_(config.adapters) {}
  [[nodiscard]] std::span<const hotset::tensor_bytes> tensors(
      hotset::expert_key key, hotset::precision_id precision) const noexcept {
    if (adapters_ != nullptr) return adapters_->tensors(key);
    return library_ != nullptr ? library_->tensors(key, precision) : file_.tensors(key, precision);
  }

 private:
  hotset::memory_expert_source file_;
  const expert_library* library_;
  const adapter_experts* adapters_;
};
static_assert(hotset::expert_source<expert_copies>);

/// A paging provider, independent of its policies.
class paged_provider : public expert_provider {
 public:
  [[nodiscard]] virtual hotset::pager_stats stats() const = 0;
  [[nodiscard]] virtual const hotset::pool_layout& layout() const noexcept = 0;
  [[nodiscard]] virtual std::uint64_t decision_hash() const noexcept = 0;
  [[nodiscard]] virtual std::uint64_t bytes_moved() const noexcept = 0;
  /// Experts copied through transient slots.
  [[nodiscard]] virtual std::uint64_t streamed() const noexcept = 0;
  /// Visits computed from the host copy because their copies failed.
  [[nodiscard]] virtual std::uint64_t host_visits() const noexcept = 0;
  [[nodiscard]] virtual bool is_exact() const noexcept = 0;
  [[nodiscard]] virtual hotset::prediction_score::counts predictions() const noexcept = 0;
  [[nodiscard]] virtual hotset::prefetch_queue_stats queue() const noexcept = 0;
  /// Emulated link: time that the arithmetic waited for it, and time that it carried copies. Units: ns.
  [[nodiscard]] virtual hotset::ticks blocked() const noexcept = 0;
  [[nodiscard]] virtual hotset::ticks link_busy() const noexcept = 0;
  /// Waits for outstanding copies.
  virtual void drain() = 0;
  /// Shows the counters in the view, if there is one. Call it between passes.
  virtual void publish() const = 0;
  /// A warning about the chosen size, or nothing.
  [[nodiscard]] virtual std::optional<std::string> warning() const = 0;
  /// The resizable slots; null if the slots are fixed.
  [[nodiscard]] virtual expert_pool* slots() noexcept = 0;
};

/// Serves each visit from the slots of a `slot_cache`. Threads: one at a time.
template <class Pager, class Backend = hotset::host_backend<expert_copies>>
class paged_experts final : public paged_provider {
 public:
  /// Pre: `weights` outlives the provider; no pass has more tokens than the layout was made for.
  /// Errors: hotset::invalid_config; hotset::lab::usage_error for options that exclude adapters.
  paged_experts(const model& weights, const paging_config& config,
                typename Pager::eviction_type::config eviction = {},
                typename Pager::admission_type::config admission = {})
      : model_(weights),
        library_(config.library),
        adapters_(config.adapters),
        memory_(config.memory),
        view_(config.view),
        experts_(static_cast<std::size_t>(config.layout.shape().experts)),
        source_(weights, config),
        bank_(bank_of(weights, config)),
        backend_(source_, bank_, backend_config(config)),
        stream_(config.stream),
        cache_(Pager({.layout = config.layout,
                      .eviction = std::move(eviction),
                      .admission = std::move(admission),
                      .miss = miss_config(config),
                      .split = config.split,
                      .guard = config.guard}),
               backend_, config.cache),
        gate_(weights, config.layout.shape(), config.gate,
              hotset::facts_of(cache_.pager().eviction()).wants_forecasts),
        slots_(cache_, bank_, stream_),
        transient_(backend_, static_cast<hotset::slot_id>(config.layout.slots()), config.transient),
        visit_(cache_.make_visit()) {
    check_adapters(config);
  }

  /// Errors: std::runtime_error if a copy failed after an earlier pass had read it.
  void on_step(const step_inputs& step) override {
    const hotset::routing_view view{
        .layer = hotset::before_layers,
        .step = step.step,
        .kind = static_cast<hotset::request_class>(step.kind),
        .token_ids = step.token_ids,
        .sequences = step.sequences,
    };
    cache_.open_step(view);
    gate_.look_ahead(view);
    if (gate_.expected().depth == 0) return;
    lost_ = false;
    prefetch(view, context_of(view));
    if (lost_) throw std::runtime_error("a copy failed after an earlier pass had read it");
  }
  void on_sequence_end(std::uint32_t sequence) noexcept override { gate_.ended(sequence); }

  /// Errors: provider_error for a visit that the cache refuses, or a row with an unknown adapter; std::runtime_error
  /// if a copy failed after a worker had read it: discard the pass; it may be run again.
  void run(const visit_inputs& visit, visit_compute& compute) override {
    if (adapters_ != nullptr) adapters_->reroute(visit, adapter_of_row_);
    const bool has_scores = adapters_ == nullptr;  // scores of every named expert
    hotset::routing_view view{
        .layer = visit.layer,
        .step = visit.step,
        .kind = static_cast<hotset::request_class>(visit.kind),
        .experts = visit.ids,
        .weights = visit.weights,
        .logits = has_scores ? visit.logits : std::span<const float>{},
        .probabilities = has_scores ? visit.probabilities : std::span<const float>{},
        .hidden = visit.hidden,
        .ordinal = ordinal_++,
        .token_ids = visit.token_ids,
        .sequences = visit.sequences,
    };
    gate_.route(visit, view, residents(visit.layer));
    freed_for_ = hotset::before_layers;
    keep_inputs(view);
    gate_.look_ahead(view);
    if (gate_.frees_slots(hotset::release_point::gate)) free_ahead(view);
    used_ = 0;
    transient_.begin_visit();
    lost_ = false;
    const auto state = cache_.serve(view, stream_, visit_, [&](const hotset::visit_group& group) {
      if (group.number() == 0) take_edits(visit, group);
      if (group.is_last()) prefetch(view, group.context());
      enqueue_group(visit, group.plan(), compute);
    });
    if (gate_.frees_slots(hotset::release_point::end)) free_ahead(view);
    stream_.drain();
    finish(visit, compute, state);
  }

  [[nodiscard]] hotset::pager_stats stats() const override { return cache_.stats(); }
  [[nodiscard]] const hotset::pool_layout& layout() const noexcept override {
    return cache_.pager().layout();
  }
  [[nodiscard]] std::uint64_t decision_hash() const noexcept override {
    return cache_.pager().decision_hash();
  }
  [[nodiscard]] std::uint64_t bytes_moved() const noexcept override {
    return backend_.bytes_moved();
  }
  [[nodiscard]] std::uint64_t streamed() const noexcept override { return transient_.streamed(); }
  [[nodiscard]] std::uint64_t host_visits() const noexcept override { return host_visits_; }
  [[nodiscard]] bool is_exact() const noexcept override {
    return cache_.pager().is_exact() && gate_.is_exact();
  }
  [[nodiscard]] hotset::prediction_score::counts predictions() const noexcept override {
    return gate_.predictions();
  }
  [[nodiscard]] hotset::prefetch_queue_stats queue() const noexcept override {
    return cache_.queue().stats();
  }
  [[nodiscard]] hotset::ticks blocked() const noexcept override {
    if constexpr (requires { backend_.blocked(); }) return backend_.blocked();
    return 0;
  }
  [[nodiscard]] hotset::ticks link_busy() const noexcept override {
    if constexpr (requires { backend_.busy(); }) return backend_.busy();
    return 0;
  }
  void drain() override { (void)cache_.drain(); }
  void publish() const override {
    if (view_ != nullptr) view_->metrics().publish(cache_, memory_);
  }
  [[nodiscard]] std::optional<std::string> warning() const override {
    return cache_.pager().warning();
  }
  [[nodiscard]] expert_pool* slots() noexcept override {
    return bank_.is_elastic() ? &slots_ : nullptr;
  }
  [[nodiscard]] Backend& backend() noexcept { return backend_; }

 private:
  /// Arithmetic of one group. It copies the plan's data, because the plan is reused while a worker still computes.
  struct group_work {
    visit_compute* compute = nullptr;
    bool by_expert = false;
    std::vector<std::int32_t> members;  ///< tokens, or experts
    hotset::per_expert<expert_tensors> tensors;
    std::exception_ptr error;
    hotset::live_view* view = nullptr;
    hotset::engine_timeline::computation seen{};  ///< for the view
  };

  static typename Backend::config backend_config(const paging_config& config) {
    typename Backend::config out{};
    if constexpr (requires { out.link; }) out.link = *config.link;
    out.observer = config.view;
    return out;
  }
  static typename Pager::miss_type::config miss_config(const paging_config& config) {
    if constexpr (std::is_same_v<typename Pager::miss_type, hotset::any_miss_policy>)
      return config.miss.value_or(hotset::any_miss_policy::config{});
    else
      return {};
  }

  /// Copies the inputs: the engine's arrays may be edited while the cache still reads the visit.
  void keep_inputs(hotset::routing_view& view) {
    if constexpr (Pager::miss_type::traits.fetches_all) return;
    ids_.assign(view.experts.begin(), view.experts.end());
    weights_.assign(view.weights.begin(), view.weights.end());
    view.experts = ids_;
    view.weights = weights_;
  }
  /// Writes the ids that the miss policy has kept to the engine.
  void take_edits(const visit_inputs& visit, const hotset::visit_group& group) {
    if (!group.edited()) return;
    std::ranges::transform(group.routed(), visit.ids.begin(), hotset::number<hotset::expert_id>);
    renormalise(visit.ids, visit.weights, visit.top_k);
  }
  static hotset::visit_context context_of(const hotset::routing_view& view) noexcept {
    return {.layer = view.layer, .step = view.step, .kind = view.kind};
  }
  /// Residents; includes the free slots if some were freed for this visit.
  [[nodiscard]] hotset::residency_view residents(hotset::layer_id layer) const noexcept {
    const auto& pages = cache_.pager();
    hotset::residency_view out{pages.located(layer)};
    if (layer == freed_for_)
      out.free_slots =
          static_cast<std::int32_t>(pages.free_slots(pages.layout().pool_of_layer(layer)));
    return out;
  }
  /// Notifies policies of the forecast even if nothing is prefetched. A failed prefetch does not end the visit. Its
  /// status may be the only report that an earlier group has read a failed copy, so lost_ keeps it until `finish`.
  void prefetch(const hotset::routing_view& view, const hotset::visit_context& context) {
    const auto wanted = gate_.propose(view);
    if (!gate_.prefetches() && gate_.expected().depth == 0) return;
    lost_ = cache_.prefetch(context, wanted, stream_, gate_.expected()) != hotset::status::ok;
  }
  /// Frees slots for the layer after the view's, before it is routed.
  void free_ahead(const hotset::routing_view& view) {
    auto& pages = cache_.pager();
    auto next = context_of(view);
    if (++next.layer == pages.shape().layers) return;
    pages.expect(context_of(view), gate_.expected());
    const auto wanted = gate_.slots_to_free({pages.located(next.layer)});
    (void)cache_.pre_evict(next, wanted.free, wanted.spared);
    freed_for_ = next.layer;
  }

  void enqueue_group(const visit_inputs& visit, const hotset::visit_plan& plan,
                     visit_compute& compute) {
    if (used_ == work_.size()) work_.emplace_back();
    group_work& work = work_[used_++];
    work.compute = &compute;
    work.by_expert = plan.expert_wise();
    work.error = nullptr;
    work.view = view_;
    work.seen.layer = visit.layer;
    work.seen.step = visit.step;
    work.seen.tokens = plan.tokens().size();
    work.members.clear();
    if (plan.expert_wise()) {
      for (const auto expert : plan.experts()) work.members.push_back(number(expert));
    } else {
      work.members.assign(plan.tokens().begin(), plan.tokens().end());
    }
    work.tensors.assign(experts_, expert_tensors{});
    for (std::size_t i = 0; i < plan.experts().size(); ++i) {
      const auto expert = plan.experts()[i];
      auto slot = plan.slots()[i];
      if (slot == hotset::no_slot)
        slot = transient_.stream_in({visit.layer, expert}, hotset::precision_id{0}, stream_);
      work.tensors[expert] = slot == hotset::no_slot ? host_copy(visit, expert) : in_slot(slot);
    }
    stream_.run(&paged_experts::compute_group, &work);
    transient_.record_readers(stream_);
  }

  static void compute_group(void* context) noexcept {
    auto& work = *static_cast<group_work*>(context);
    const auto lookup = [&](std::int32_t expert) {
      return work.tensors[hotset::expert_id{expert}];
    };
    if (work.view != nullptr) work.seen.begin = hotset::observed_clock::now();
    try {
      if (work.by_expert) {
        work.compute->partial(work.members, lookup);
      } else {
        (*work.compute)(work.members, lookup);
      }
    } catch (...) {
      work.error = std::current_exception();
    }
    if (work.view == nullptr) return;
    work.seen.end = hotset::observed_clock::now();
    work.view->on_compute(work.seen);
  }

  void finish(const visit_inputs& visit, visit_compute& compute, hotset::status state) {
    for (std::size_t i = 0; i < used_; ++i) {
      if (work_[i].error) std::rethrow_exception(work_[i].error);
    }
    if (state == hotset::status::fill_failed) {
      compute_rest_on_host(visit, compute);
    } else if (state != hotset::status::ok) {
      throw provider_error("layer " + to_string(visit.layer) + ": " +
                           std::string(hotset::describe(state)));
    }
    if (transient_.settle() != hotset::status::ok) lost_ = true;
    if (stream_.is_caller() && !lost_) return;
    // A worker is not notified of a failed copy.
    if (cache_.settle() != hotset::status::ok || lost_) {
      throw std::runtime_error("layer " + to_string(visit.layer) +
                               ": a copy failed after the visit had read it");
    }
  }

  /// The host copy goes through the same kernel, so it gives the same bytes.
  void compute_rest_on_host(const visit_inputs& visit, visit_compute& compute) {
    ++host_visits_;
    std::vector<std::uint8_t> done(std::max(visit.tokens, experts_), 0);
    bool by_expert = false;
    for (std::size_t i = 0; i < used_; ++i) {
      by_expert = work_[i].by_expert;
      for (const std::int32_t member : work_[i].members) done[static_cast<std::size_t>(member)] = 1;
    }
    std::vector<std::int32_t> rest;
    for (std::size_t i = 0; i < (by_expert ? experts_ : visit.tokens); ++i) {
      if (done[i] == 0) rest.push_back(static_cast<std::int32_t>(i));
    }
    const auto lookup = [&](std::int32_t expert) {
      return host_copy(visit, hotset::expert_id{expert});
    };
    by_expert ? compute.partial(rest, lookup) : compute(rest, lookup);
  }

  /// The host copy at the cache's highest precision.
  [[nodiscard]] expert_tensors host_copy(const visit_inputs& visit,
                                         hotset::expert_id expert) const {
    if (adapters_ != nullptr) return adapters_->expert(index_of(visit.layer), index_of(expert));
    if (library_ != nullptr)
      return library_->expert({visit.layer, expert}, hotset::precision_id{0});
    return model_.expert(index_of(visit.layer), index_of(expert));
  }
  [[nodiscard]] expert_tensors in_slot(hotset::slot_id slot) const noexcept {
    const auto tensor = [&](std::size_t t) {
      return reinterpret_cast<const std::uint16_t*>(bank_.bytes(slot, t).data());
    };
    const int bits =  // a transient slot is outside the pager; a library excludes it
        library_ == nullptr ? 16 : library_->bits()[index_of(cache_.pager().precision_of(slot))];
    return {.gate = tensor(0), .up = tensor(1), .down = tensor(2), .bits = bits};
  }

  const model& model_;
  const expert_library* library_;
  const adapter_experts* adapters_;
  const hotset::memory_budget* memory_;
  hotset::live_view* view_;
  std::size_t experts_;  ///< per layer, including those of adapters
  expert_copies source_;
  hotset::host_slot_bank bank_;
  Backend backend_;
  hotset::host_stream stream_;
  std::vector<std::int32_t> adapter_of_row_;
  std::vector<hotset::expert_id> ids_;  ///< copied ids of the running visit, for a miss policy
  std::vector<float> weights_;
  hotset::slot_cache<Pager, Backend> cache_;
  gate_hook gate_;
  /// Layer for whose next visit slots were freed.
  hotset::layer_id freed_for_ = hotset::before_layers;
  expert_pool_of<hotset::slot_cache<Pager, Backend>> slots_;
  hotset::transient_slots<Backend> transient_;
  hotset::cache_visit visit_;
  std::deque<group_work> work_;  ///< reused; addresses stay
  std::size_t used_ = 0;         ///< used entries of work_ in the running visit
  bool lost_ = false;            // a group of this visit has read a failed copy
  std::uint64_t ordinal_ = 0;
  std::uint64_t host_visits_ = 0;
};

/// Makes a provider with named policies, such as "protect_hot:uses=4+lru" and "budgeted". `profile`: usage counts for
/// `popularity`.
/// Errors: hotset::lab::usage_error, hotset::invalid_config.
[[nodiscard]] std::unique_ptr<paged_provider> make_paged_experts(
    const model& weights, const paging_config& config, std::string_view eviction,
    std::string_view admission = "always", const hotset::usage_profile& profile = {});

/// Uses of each expert in some texts; counted once, on first use.
/// Threads: const use is safe.
class routing_profile {
 public:
  /// Pre: `weights` outlives it.
  routing_profile(const model& weights, std::vector<std::string> texts)
      : weights_(weights), texts_(std::move(texts)) {}

  [[nodiscard]] const hotset::usage_profile& counts() const;

 private:
  [[nodiscard]] hotset::usage_profile count() const;

  const model& weights_;
  std::vector<std::string> texts_;
  mutable std::once_flag counted_;
  mutable hotset::usage_profile counts_;
};

}  // namespace tiny_moe
