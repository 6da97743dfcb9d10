// SPDX-License-Identifier: Apache-2.0
#pragma once
/// An engine that takes a visit's experts one after the other and protects none of them, as SpecMD's Algorithm 1 does.
///
/// Only to compare with it: what it computes with may be gone before the visit has ended, so no batched kernel could
/// run like this. Each distinct expert of a visit, in routed order, is looked up, fetched if it is missing, and used;
/// the next one may take its slot. Prefetches follow the last fetch. They are placed one at a time, when the copy before
/// has ended, so that a later one may evict an earlier one.

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/numbers/unique_ids.hpp"
#include "lab/replay/simulated_engine.hpp"

namespace hotset::lab {

/// The geometry of a pager that sees one expert at a time.
[[nodiscard]] inline geometry one_by_one(geometry shape) {
  shape.top_k = 1;
  shape.max_tokens_per_visit = 1;
  return shape;
}

/// Counts of its pager are of single experts: a visit is one expert's. A visit's arithmetic is shared evenly by its
/// experts. Pre: the pager's shape is one_by_one(shape), it fetches every miss.
template <class Pager>
class expert_engine final : public engine_over<Pager> {
  using base = engine_over<Pager>;
  using base::arithmetic_, base::backend_, base::cache_, base::costs_, base::decisions_,
      base::mass_, base::stream_, base::visit_;

 public:
  /// `shape`: of the views.
  expert_engine(const geometry& shape, Pager decisions, const engine_clock& clock,
                const visit_costs& costs)
      : base(std::move(decisions), clock, costs, {.most_under_way = 1}),
        top_k_(shape.ranks()),
        unique_(shape.expert_count(), shape.tokens_per_visit() * top_k_),
        experts_(shape.expert_count()),
        weights_(shape.expert_count(), 0) {}

  status visit(const routing_view& view, look_ahead& ahead) override {
    base::run_gate();
    const auto count = unique_.collect(view.experts, experts_.data());
    const auto tokens = view.experts.size() / top_k_;
    const auto arithmetic = costs_.per_visit + costs_.per_token * tokens;
    sum_weights(view);
    for (std::size_t token = 0; token < tokens; ++token)
      mass_.take(view, ahead.weights_of(view), view.experts, token, top_k_);
    ticks spent = 0;
    for (std::size_t n = 0; n < count; ++n) {
      place_waiting(stream_.host());
      if (const auto failed = resolve(view, n); failed != status::ok) return failed;
      context_ = visit_.plan().context();
      if (n + 1 == count) base::prefetch(view, context_, ahead);
      const auto until = arithmetic * (n + 1) / count;
      compute(until - std::exchange(spent, until), tokens);
    }
    return status::ok;
  }

 private:
  /// Where a token repeats an expert, its weights add up, as in a visit of the whole.
  void sum_weights(const routing_view& view) noexcept {
    if (view.weights.empty()) return;
    for (const auto e : view.experts)
      if (is_expert(e)) weights_[e] = 0;
    for (std::size_t i = 0; i < view.experts.size(); ++i)
      if (is_expert(view.experts[i])) weights_[view.experts[i]] += view.weights[i];
  }
  [[nodiscard]] bool is_expert(expert_id e) const noexcept {
    return e >= 0 && index_of(e) < weights_.size();
  }
  status resolve(const routing_view& view, std::size_t n) {
    const auto e = index_of(experts_[n]);
    const routing_view one{.layer = view.layer,
                           .step = view.step,
                           .kind = view.kind,
                           .experts = std::span(experts_).subspan(n, 1),
                           .weights = view.weights.empty() ? std::span<const float>{}
                                                           : std::span(weights_).subspan(e, 1),
                           .ordinal = view.ordinal};
    const auto state = cache_.resolve(one, stream_, visit_);
    if (state == status::ok && decisions_ != nullptr) decisions_->on_plan(visit_.plan());
    return state;
  }
  void compute(ticks time, std::size_t tokens) {
    const auto from = std::max(stream_.now(), stream_.host());
    stream_.run(time);
    if (arithmetic_ != nullptr) arithmetic_->on_compute(from, stream_.now(), context_, tokens);
    cache_.release(visit_, stream_);
    stream_.synchronise();
  }
  /// Places what waits, each when the copy before it has ended, up to `until`.
  void place_waiting(ticks until) {
    while (!cache_.queue().empty()) {
      const auto waiting = cache_.queue().size();
      (void)cache_.prefetch(context_, {}, watchdog_);
      if (cache_.queue().size() == waiting && !backend_->advance_to_stop(until)) break;
    }
    backend_->advance(until);
  }

  clock_stream watchdog_;  ///< places what waits when the link says so, whatever the host does
  std::size_t top_k_;
  unique_ids unique_;
  std::vector<expert_id> experts_;
  per_expert<float> weights_;  ///< [experts], of the running visit
  visit_context context_{};    ///< of the last expert that was looked up
};

}  // namespace hotset::lab
