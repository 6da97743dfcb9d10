// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Experts in a slot cache: what an engine writes to use hotset.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hotset/core/geometry.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/core/status.hpp"
#include "hotset/paging/pager.hpp"
#include "hotset/paging/slot_cache.hpp"
#include "hotset/sim/registry.hpp"
#include "hotset/transfer/host_backend.hpp"
#include "hotset/transfer/host_slot_bank.hpp"
#include "hotset/transfer/host_stream.hpp"
#include "hotset/transfer/memory_expert_source.hpp"
#include "tiny_moe/expert_provider.hpp"
#include "tiny_moe/model.hpp"

namespace tiny_moe {

/// The model's experts as hotset counts them. max_tokens: of one visit; 0: the model's max_positions.
[[nodiscard]] hotset::geometry geometry_of(const model& weights, std::size_t max_tokens = 0);

/// The slots that a budget buys: "25%" of the experts in the scope, "96" slots (in per-layer scope:
/// in every layer), or "1500KiB" for all layers together. max_tokens as above.
/// Errors: hotset::sim::usage_error; hotset::sim::infeasible_error if a token could not be served.
[[nodiscard]] hotset::pool_layout layout_of(const model& weights, hotset::cache_scope scope,
                                            std::string_view budget, std::size_t max_tokens = 0);

struct paging_config {
  hotset::pool_layout layout;
  hotset::visit_split split = hotset::visit_split::by_token;
  /// caller: every group is computed at once. worker: on a thread of its own, like a device stream,
  /// so that the copies of one group run beside the arithmetic of another.
  hotset::host_stream::mode stream = hotset::host_stream::mode::caller;
  /// A visit whose copies fail is tried so often, then computed from the host copy.
  int attempts = 3;
};

/// Where every expert stands in the mapped file: gate, up, down.
[[nodiscard]] hotset::memory_expert_source source_of(const model& weights);
[[nodiscard]] hotset::host_slot_bank bank_of(const model& weights,
                                             const hotset::pool_layout& layout);

/// A provider that pages, whatever its policies.
class paged_provider : public expert_provider {
 public:
  [[nodiscard]] virtual hotset::pager_stats stats() const = 0;
  [[nodiscard]] virtual const hotset::pool_layout& layout() const noexcept = 0;
  [[nodiscard]] virtual std::uint64_t decision_hash() const noexcept = 0;
  [[nodiscard]] virtual std::uint64_t bytes_moved() const noexcept = 0;
  /// Visits that were computed from the host copy because their copies failed.
  [[nodiscard]] virtual std::uint64_t host_visits() const noexcept = 0;
  [[nodiscard]] virtual bool is_exact() const noexcept = 0;
  /// What a user should know of the chosen size, or nothing.
  [[nodiscard]] virtual std::optional<std::string> warning() const = 0;
};

/// Serves each visit from the slots of a `slot_cache`. Threads: one at a time.
template <class Pager, class Backend = hotset::host_backend<hotset::memory_expert_source>>
class paged_experts final : public paged_provider {
 public:
  /// Pre: `weights` outlives the provider; no pass has more tokens than the layout was made for.
  /// Errors: hotset::invalid_config.
  paged_experts(const model& weights, const paging_config& config,
                typename Pager::eviction_type::config eviction = {},
                typename Pager::admission_type::config admission = {})
      : model_(weights),
        attempts_(std::max(1, config.attempts)),
        source_(source_of(weights)),
        bank_(bank_of(weights, config.layout)),
        backend_(source_, bank_),
        stream_(config.stream),
        cache_(Pager({.layout = config.layout,
                      .eviction = std::move(eviction),
                      .admission = std::move(admission),
                      .split = config.split}),
               backend_),
        visit_(cache_.make_visit()) {}

  /// Errors: provider_error for a visit that the cache refuses; std::runtime_error if a copy failed
  /// after a worker had read it: the pass is then worth nothing and may be run again.
  void run(const visit_inputs& visit, visit_compute& compute) override {
    const hotset::routing_view view{
        .layer = visit.layer,
        .step = visit.step,
        .kind = static_cast<hotset::request_class>(visit.kind),
        .experts = visit.ids,
        .weights = visit.weights,
        .logits = visit.logits,
        .probabilities = visit.probabilities,
        .hidden = visit.hidden,
        .ordinal = ordinal_++,
    };
    used_ = 0;
    auto state = tried([&] { return cache_.resolve(view, stream_, visit_); });
    while (state == hotset::status::ok) {
      enqueue_group(visit, compute);
      cache_.release(visit_, stream_);
      if (!visit_.more()) break;
      state = tried([&] { return cache_.resolve_next(stream_, visit_); });
    }
    stream_.drain();
    finish(visit, compute, state);
  }

  [[nodiscard]] hotset::pager_stats stats() const override { return cache_.stats(); }
  [[nodiscard]] const hotset::pool_layout& layout() const noexcept override {
    return cache_.decisions().layout();
  }
  [[nodiscard]] std::uint64_t decision_hash() const noexcept override {
    return cache_.decisions().decision_hash();
  }
  [[nodiscard]] std::uint64_t bytes_moved() const noexcept override {
    return backend_.bytes_moved();
  }
  [[nodiscard]] std::uint64_t host_visits() const noexcept override { return host_visits_; }
  [[nodiscard]] bool is_exact() const noexcept override { return cache_.decisions().is_exact(); }
  [[nodiscard]] std::optional<std::string> warning() const override {
    return cache_.decisions().warning();
  }
  [[nodiscard]] Backend& backend() noexcept { return backend_; }

 private:
  /// One group's arithmetic. It has its own copy of what the plan says: the plan is reused while a
  /// worker still computes.
  struct group_work {
    visit_compute* compute = nullptr;
    bool by_expert = false;
    bool all_tokens = false;
    std::vector<std::int32_t> members;    ///< tokens, or experts
    std::vector<expert_tensors> tensors;  ///< by expert
    std::exception_ptr error;
  };

  template <class Resolve>
  hotset::status tried(Resolve resolve) {
    auto state = resolve();
    for (int i = 1; i < attempts_ && state == hotset::status::fill_failed; ++i) state = resolve();
    return state;
  }

  void enqueue_group(const visit_inputs& visit, visit_compute& compute) {
    if (used_ == work_.size()) work_.emplace_back();
    group_work& work = work_[used_++];
    const hotset::step_plan& plan = visit_.plan();
    work.compute = &compute;
    work.by_expert = plan.expert_wise();
    work.all_tokens = !plan.expert_wise() && plan.groups() == 1;
    work.error = nullptr;
    work.members.clear();
    if (plan.expert_wise()) {
      work.members.assign(plan.experts().begin(), plan.experts().end());
    } else {
      work.members.assign(plan.tokens().begin(), plan.tokens().end());
    }
    work.tensors.assign(visit.experts, expert_tensors{});
    for (std::size_t i = 0; i < plan.experts().size(); ++i) {
      const auto expert = static_cast<std::size_t>(plan.experts()[i]);
      const auto slot = plan.slots()[i];
      work.tensors[expert] = slot == hotset::no_slot ? host_copy(visit, expert) : in_slot(slot);
    }
    stream_.run(&paged_experts::compute_group, &work);
  }

  static void compute_group(void* context) noexcept {
    auto& work = *static_cast<group_work*>(context);
    const auto lookup = [&](std::int32_t expert) {
      return work.tensors[static_cast<std::size_t>(expert)];
    };
    try {
      if (work.by_expert) {
        work.compute->partial(work.members, lookup);
      } else if (work.all_tokens) {
        work.compute->all(lookup);
      } else {
        (*work.compute)(work.members, lookup);
      }
    } catch (...) {
      work.error = std::current_exception();
    }
  }

  void finish(const visit_inputs& visit, visit_compute& compute, hotset::status state) {
    for (std::size_t i = 0; i < used_; ++i) {
      if (work_[i].error) std::rethrow_exception(work_[i].error);
    }
    if (state == hotset::status::fill_failed) {
      compute_rest_on_host(visit, compute);
    } else if (state != hotset::status::ok) {
      throw provider_error("layer " + std::to_string(visit.layer) + ": " +
                           std::string(hotset::describe(state)));
    }
    if (stream_.is_caller()) return;
    if (cache_.settle() != hotset::status::ok) {  // a worker is not told of a failed copy
      throw std::runtime_error("layer " + std::to_string(visit.layer) +
                               ": a copy failed after the visit had read it");
    }
  }

  /// The host copy goes through the same kernel: it gives the same bytes.
  void compute_rest_on_host(const visit_inputs& visit, visit_compute& compute) {
    ++host_visits_;
    std::vector<std::uint8_t> done(std::max(visit.tokens, visit.experts), 0);
    bool by_expert = false;
    for (std::size_t i = 0; i < used_; ++i) {
      by_expert = work_[i].by_expert;
      for (const std::int32_t member : work_[i].members) done[static_cast<std::size_t>(member)] = 1;
    }
    std::vector<std::int32_t> rest;
    for (std::size_t i = 0; i < (by_expert ? visit.experts : visit.tokens); ++i) {
      if (done[i] == 0) rest.push_back(static_cast<std::int32_t>(i));
    }
    const auto lookup = [&](std::int32_t expert) {
      return host_copy(visit, static_cast<std::size_t>(expert));
    };
    by_expert ? compute.partial(rest, lookup) : compute(rest, lookup);
  }

  [[nodiscard]] expert_tensors host_copy(const visit_inputs& visit, std::size_t expert) const {
    return model_.expert(static_cast<std::size_t>(visit.layer), expert);
  }
  [[nodiscard]] expert_tensors in_slot(hotset::slot_id slot) const noexcept {
    const auto tensor = [&](std::size_t t) {
      return reinterpret_cast<const std::uint16_t*>(bank_.bytes(slot, t).data());
    };
    return {.gate = tensor(0), .up = tensor(1), .down = tensor(2)};
  }

  const model& model_;
  int attempts_;
  hotset::memory_expert_source source_;
  hotset::host_slot_bank bank_;
  Backend backend_;
  hotset::host_stream stream_;
  hotset::slot_cache<Pager, Backend> cache_;
  hotset::cache_visit visit_;
  std::deque<group_work> work_;  ///< reused; addresses stay
  std::size_t used_ = 0;         ///< of work_, by the running visit
  std::uint64_t ordinal_ = 0;
  std::uint64_t host_visits_ = 0;
};

/// A provider with policies chosen by name, such as "protect_hot:uses=4+lru" and "budgeted".
/// `profile` is what `popularity` goes by.
/// Errors: hotset::sim::usage_error, hotset::invalid_config.
[[nodiscard]] std::unique_ptr<paged_provider> make_paged_experts(
    const model& weights, const paging_config& config, std::string_view eviction,
    std::string_view admission = "always", const hotset::popularity::config& profile = {});

/// How often each expert is routed in these texts.
[[nodiscard]] hotset::popularity::config count_routing(const model& weights,
                                                       std::span<const std::string> texts);

}  // namespace tiny_moe
