// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What happens at a layer's gate besides the cache, in the order of SpecMD's Algorithm 1: routing before, prefetch after.

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "hotset/core/miss.hpp"
#include "hotset/predict/any_predictor.hpp"
#include "hotset/predict/gate_predictors.hpp"
#include "hotset/predict/prediction_score.hpp"
#include "hotset/prefetch/any_prefetch_policy.hpp"
#include "hotset/routing/any_routing_policy.hpp"
#include "tiny_moe/expert_provider.hpp"
#include "tiny_moe/model.hpp"

namespace tiny_moe {

struct gate_config {
  std::optional<hotset::any_routing_policy::config> routing{};  ///< none: the router's selection
  std::optional<hotset::any_prefetch_policy::config> prefetch{};
  /// Of prefetchers by score. next_router: computed here; current_gate: the running layer's probabilities;
  /// co_activation: learnt from what is routed.
  hotset::any_predictor::config predictor = hotset::any_predictor::holding<hotset::next_router>();
};

/// Threads: one at a time.
class gate_hook {
 public:
  /// Errors: hotset::sim::usage_error for a prefetcher that needs what an engine cannot know.
  gate_hook(const model& weights, const hotset::geometry& shape, const gate_config& config);

  /// Bends the ids and weights of the visit as the routing policy wants it.
  /// Errors: std::runtime_error if the policy refuses the visit.
  void route(const visit_inputs& visit, hotset::routing_view& view,
             const hotset::residency_view& residents);
  /// What to prefetch after the visit, best first; empty without a prefetcher. Valid until the next call.
  std::span<const hotset::prefetch_request> propose(const hotset::routing_view& view);
  /// What the last proposal was made of.
  [[nodiscard]] const hotset::forecast& expected() const noexcept { return expected_; }
  [[nodiscard]] const hotset::prediction_score::counts& predictions() const noexcept {
    return score_.so_far();
  }
  [[nodiscard]] bool is_exact() const noexcept { return !routing_ || routing_->facts().is_exact; }

 private:
  std::vector<std::vector<float>> routers_;  ///< [layers] of [experts, hidden]; only if computed
  hotset::prediction_score score_;
  std::optional<hotset::any_routing_policy> routing_;
  std::optional<hotset::any_prefetch_policy> prefetcher_;
  std::optional<hotset::any_predictor> predictor_;
  std::vector<hotset::prefetch_request> requests_;
  hotset::forecast expected_{};
};

/// Shares what a token's remaining ranks weigh among them: ids of -1 weigh nothing, the others sum to what all did.
void renormalise(std::span<const std::int32_t> ids, std::span<float> weights, std::size_t top_k);

}  // namespace tiny_moe
