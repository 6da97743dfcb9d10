// SPDX-License-Identifier: Apache-2.0
#include "lab/replay/expert_engine.hpp"

#include <cstddef>
#include <utility>
#include <vector>

#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/numbers/unique_ids.hpp"
#include "lab/replay/registry.hpp"

namespace hotset::lab {

namespace {

class expert_engine final : public simulated_engine {
 public:
  expert_engine(const geometry& shape, erased_pager decisions, const engine_clock& clock,
                const visit_costs& costs)
      : simulated_engine(std::move(decisions), clock, costs, {.most_under_way = 1}),
        top_k_(shape.ranks()),
        unique_(shape.expert_count(), shape.tokens_per_visit() * top_k_),
        experts_(shape.expert_count()),
        weights_(shape.expert_count(), 0) {}

  status visit(const routing_view& view, look_ahead& ahead) override {
    run_gate();
    const auto count = unique_.collect(view.experts, experts_.data());
    const auto tokens = view.experts.size() / top_k_;
    const auto arithmetic = costs_.per_visit + costs_.per_token * tokens;
    sum_weights(view);
    for (std::size_t token = 0; token < tokens; ++token)
      mass_.take(view, ahead, view.experts, token, top_k_);
    ticks spent = 0;
    for (std::size_t n = 0; n < count; ++n) {
      place_waiting(stream_.host());
      if (const auto failed = resolve(view, n); failed != status::ok) return failed;
      context_ = visit_.plan().context();
      if (n + 1 == count) prefetch(view, context_, ahead);
      const auto until = arithmetic * (n + 1) / count;
      run_arithmetic(until - std::exchange(spent, until), context_, tokens);
      cache_.release(visit_, stream_);
      stream_.synchronise();
    }
    return status::ok;
  }

 private:
  /// Sums the weights of an expert that several tokens use, as a visit of all experts does.
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
  /// Places waiting prefetches until `until`, each when the previous copy has ended.
  void place_waiting(ticks until) {
    while (!cache_.queue().empty()) {
      const auto waiting = cache_.queue().size();
      (void)cache_.prefetch(context_, {}, watchdog_);
      if (cache_.queue().size() == waiting && !backend_->advance_to_stop(until)) break;
    }
    backend_->advance(until);
  }

  /// Places waiting prefetches at the link's times, independent of the host.
  clock_stream watchdog_;
  std::size_t top_k_;
  unique_ids unique_;
  std::vector<expert_id> experts_;
  per_expert<float> weights_;  ///< [experts], weights of the running visit
  visit_context context_{};    ///< context of the last looked-up expert
};

}  // namespace

std::unique_ptr<simulated_engine> make_expert_engine(const pager_request& request,
                                                     const policy_knowledge& knowledge,
                                                     const geometry& shape,
                                                     const engine_clock& clock,
                                                     const visit_costs& costs) {
  if (request.miss)
    throw usage_error("expert-by-expert replay fetches every miss, accepted: --miss fetch");
  return std::make_unique<expert_engine>(shape, make_pager(request, knowledge), clock, costs);
}

}  // namespace hotset::lab
