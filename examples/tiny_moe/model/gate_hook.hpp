// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Policies at a layer's gate, in the order of SpecMD's Algorithm 1: routing before the cache, prefetch after it.

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "hotset/core/forecast.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/policy/any/any_predictor.hpp"
#include "hotset/policy/any/any_prefetch_policy.hpp"
#include "hotset/policy/routing_policy.hpp"
#include "hotset/predict/gate_predictors.hpp"
#include "hotset/predict/prediction_score.hpp"
#include "hotset/prefetch/active_evict.hpp"
#include "tiny_moe/model/expert_provider.hpp"
#include "tiny_moe/model/model.hpp"

namespace tiny_moe {

struct gate_config {
  std::optional<hotset::any_routing_policy::config> routing{};  ///< none: the router's selection
  std::optional<hotset::any_prefetch_policy::config> prefetch{};
  /// None: slots are freed when needed.
  std::optional<hotset::active_evict::config> pre_eviction{};
  /// For all users of forecasts: prefetchers by score, pre-eviction, eviction policies by forecast.
  hotset::any_predictor::config predictor = hotset::any_predictor::holding<hotset::next_router>();
};

/// Call for each visit: `route`, `look_ahead`, then the cache. Threads: one at a time.
class gate_hook {
 public:
  /// `tells_forecasts`: the cache's eviction policy uses forecasts. Pre: `weights` outlives it.
  /// Errors: hotset::invalid_config; hotset::lab::usage_error for policies that need facts an engine cannot know,
  /// another policy's output, or scores if the shape has other experts than the router.
  gate_hook(const model& weights, const hotset::geometry& shape, const gate_config& config,
            bool tells_forecasts);

  /// Applies the routing policy to the ids and weights of the visit.
  /// Errors: std::runtime_error if the policy refuses the visit.
  void route(const visit_inputs& visit, hotset::routing_view& view,
             const hotset::residency_view& residents);
  /// Learns a visit's routing, or a step's opening, and forecasts the following layers. Call once for each, in order.
  void look_ahead(const hotset::routing_view& view);
  /// Notifies that a sequence has had its last token.
  void ended(hotset::sequence_id sequence) noexcept;

  /// Forecast of the last look_ahead(); depth 0: none.
  [[nodiscard]] const hotset::forecast& expected() const noexcept { return expected_; }
  [[nodiscard]] bool prefetches() const noexcept { return prefetcher_.has_value(); }
  /// Prefetch requests after the view, best first; empty without a prefetcher. Valid until the next call.
  std::span<const hotset::prefetch_request> propose(const hotset::routing_view& view);
  /// Whether slots of the next layer are freed at this point of a visit.
  [[nodiscard]] bool frees_slots(hotset::release_point now) const noexcept {
    return pre_evictor_ && pre_evictor_->options().release == now && expected_.depth != 0;
  }
  /// Number of slots to free; `next` is the next layer. Pre: frees_slots at some point. Valid until the next call.
  [[nodiscard]] hotset::active_evict::target slots_to_free(
      const hotset::residency_view& next) noexcept {
    return pre_evictor_->decide(expected_, next);
  }

  [[nodiscard]] const hotset::prediction_score::counts& predictions() const noexcept {
    return score_.so_far();
  }
  [[nodiscard]] bool is_exact() const noexcept { return !routing_ || routing_->facts().is_exact; }

 private:
  void take_routing(const model& weights, const hotset::geometry& shape, const gate_config& config);
  void take_prefetcher(const hotset::geometry& shape,
                       const hotset::any_prefetch_policy::config& config);
  [[nodiscard]] std::int32_t depth_wanted(bool tells_forecasts) const noexcept;
  void take_predictor(const model& weights, const hotset::geometry& shape,
                      hotset::any_predictor::config chosen);

  std::vector<std::vector<float>> routers_;  ///< [layers] of [experts, hidden]; only if needed
  hotset::prediction_score score_;
  std::optional<hotset::any_routing_policy> routing_;
  std::optional<hotset::any_prefetch_policy> prefetcher_;
  std::optional<hotset::active_evict> pre_evictor_;
  std::optional<hotset::any_predictor> predictor_;
  /// The router's ids of the visit, if a policy changes them.
  std::vector<hotset::expert_id> router_choice_;
  std::vector<hotset::expert_id> bent_;  ///< changed ids
  std::vector<hotset::prefetch_request> requests_;
  hotset::forecast expected_{};
};

/// Rescales the weights of a token's remaining ranks to the sum of all of its weights; ids of -1 get 0.
void renormalise(std::span<const std::int32_t> ids, std::span<float> weights, std::size_t top_k);

}  // namespace tiny_moe
