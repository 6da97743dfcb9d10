// SPDX-License-Identifier: Apache-2.0
#pragma once
/// An engine on a virtual clock: the library's own slot cache over a link that takes time, and arithmetic that does.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hotset/core/forecast.hpp"
#include "hotset/core/miss.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/paging/pager.hpp"
#include "hotset/paging/slot_cache.hpp"
#include "hotset/prefetch/any_prefetch_policy.hpp"
#include "hotset/registry/any_pager.hpp"
#include "hotset/transfer/clock_backend.hpp"
#include "hotset/transfer/clock_stream.hpp"
#include "hotset/transfer/link_model.hpp"

namespace hotset::inline v0::sim {

/// What a visit costs besides its copies. Units: nanoseconds.
struct visit_costs {
  ticks gate = 0;             ///< from the end of the visit before until the experts are known
  ticks per_visit = 0;        ///< of each group of tokens
  ticks per_token = 0;        ///< of each token of a group
  ticks per_host_expert = 0;  ///< of each expert that the host computes, beside the device
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

  /// `requests` is scratch for what the prefetcher proposes.
  virtual status visit(const routing_view& view, any_prefetch_policy* prefetcher,
                       const forecast& expected, std::span<prefetch_request> requests,
                       std::size_t& proposed) = 0;
  [[nodiscard]] virtual residency_view residents(layer_id layer) const = 0;
  [[nodiscard]] virtual pager_stats stats() const = 0;
  [[nodiscard]] virtual fill_queue_stats queue() const = 0;
  [[nodiscard]] virtual std::uint64_t decision_hash() const = 0;
  /// The time now, and how much of it the arithmetic waited for copies.
  [[nodiscard]] virtual ticks now() const = 0;
  [[nodiscard]] virtual ticks blocked() const = 0;
  /// Time that the link carried something; all of what was submitted is let arrive first.
  [[nodiscard]] virtual ticks link_busy() = 0;
  virtual void watch(decision_sink* decisions, link_observer* link, compute_observer* compute) = 0;
};

/// What engines over a pager of the library share.
template <class Pager>
class engine_over : public simulated_engine {
 public:
  [[nodiscard]] residency_view residents(layer_id layer) const override {
    return {cache_.decisions().located(layer)};
  }
  [[nodiscard]] pager_stats stats() const override { return cache_.stats(); }
  [[nodiscard]] fill_queue_stats queue() const override { return cache_.waiting().stats(); }
  [[nodiscard]] std::uint64_t decision_hash() const override {
    return cache_.decisions().decision_hash();
  }
  [[nodiscard]] ticks now() const override { return stream_.now(); }
  [[nodiscard]] ticks blocked() const override { return stream_.blocked(); }
  [[nodiscard]] ticks link_busy() override {
    (void)cache_.drain();
    return backend_.busy();
  }
  void watch(decision_sink* decisions, link_observer* link, compute_observer* compute) override {
    decisions_ = decisions;
    backend_.watch(link);
    arithmetic_ = compute;
  }

 protected:
  engine_over(Pager decisions, const link_model& link, const visit_costs& costs,
              const slot_cache_config& setup)
      : backend_({.link = link, .shape = decisions.shape()}),
        costs_(costs),
        cache_(std::move(decisions), backend_, setup),
        visit_(cache_.make_visit()) {}

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
  clock_backend backend_;
  visit_costs costs_;
  slot_cache<Pager, clock_backend> cache_;
  cache_visit visit_;
  decision_sink* decisions_ = nullptr;
  compute_observer* arithmetic_ = nullptr;
  // NOLINTEND(readability-identifier-naming)
};

/// A visit is an event: all of it is judged, protected and fetched at once.
template <class Pager>
class engine_model final : public engine_over<Pager> {
  using base = engine_over<Pager>;
  using base::arithmetic_, base::backend_, base::cache_, base::costs_, base::decisions_,
      base::stream_, base::visit_;

 public:
  engine_model(Pager decisions, const link_model& link, const visit_costs& costs,
               const slot_cache_config& setup = {})
      : base(std::move(decisions), link, costs, setup) {}

  status visit(const routing_view& view, any_prefetch_policy* prefetcher, const forecast& expected,
               std::span<prefetch_request> requests, std::size_t& proposed) override {
    base::run_gate();
    backend_.advance(stream_.host());
    const auto begin = stream_.now();
    return cache_.serve(view, stream_, visit_, [&](const visit_group& group) {
      if (decisions_ != nullptr) decisions_->on_plan(group.plan());
      if (group.is_last() && prefetcher != nullptr)
        proposed = prefetch(view, *prefetcher, expected, requests);
      compute(group.plan(), begin);
    });
  }

 private:
  std::size_t prefetch(const routing_view& view, any_prefetch_policy& prefetcher,
                       const forecast& expected, std::span<prefetch_request> requests) {
    const auto count = prefetcher.propose(view, expected, requests);
    (void)cache_.prefetch(visit_.plan().context(), requests.first(count), stream_, expected);
    return count;
  }
  void compute(const step_plan& plan, ticks begin) {
    const auto tokens = plan.tokens().size();
    const auto from = std::max(stream_.now(), stream_.host());
    stream_.run(costs_.per_visit + costs_.per_token * tokens);
    const auto host_ends = begin + costs_.per_host_expert * plan.host_count();
    if (host_ends > stream_.now()) stream_.run(host_ends - stream_.now());
    if (arithmetic_ != nullptr)
      arithmetic_->on_compute(from, stream_.now(), plan.context(), tokens);
  }
};

}  // namespace hotset::inline v0::sim
