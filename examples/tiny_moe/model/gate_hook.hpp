// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What happens at a layer's gate besides the cache, in the order of SpecMD's Algorithm 1: routing before, prefetch after.

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
  /// Of whatever goes by forecasts: prefetchers by score, pre-eviction, eviction policies that hear of them.
  hotset::any_predictor::config predictor = hotset::any_predictor::holding<hotset::next_router>();
};

/// For each visit: `route`, `look_ahead`, then what the cache is told. Threads: one at a time.
class gate_hook {
 public:
  /// `tells_forecasts`: the cache's eviction policy hears of them. Pre: `weights` outlives it.
  /// Errors: hotset::invalid_config; hotset::lab::usage_error for policies that need what an engine cannot know, or what
  /// another policy would give, or scores where the shape has other experts than the router.
  gate_hook(const model& weights, const hotset::geometry& shape, const gate_config& config,
            bool tells_forecasts);

  /// Bends the ids and weights of the visit as the routing policy wants it.
  /// Errors: std::runtime_error if the policy refuses the visit.
  void route(const visit_inputs& visit, hotset::routing_view& view,
             const hotset::residency_view& residents);
  /// Takes in what a visit routed, or that a step opens, and makes the forecast of the layers that follow. Once for
  /// each, in their order.
  void look_ahead(const hotset::routing_view& view);
  /// A sequence has had its last token.
  void ended(hotset::sequence_id sequence) noexcept;

  /// The forecast of the last look ahead; depth 0: there is none.
  [[nodiscard]] const hotset::forecast& expected() const noexcept { return expected_; }
  [[nodiscard]] bool prefetches() const noexcept { return prefetcher_.has_value(); }
  /// What to prefetch after the view, best first; empty without a prefetcher. Valid until the next call.
  std::span<const hotset::prefetch_request> propose(const hotset::routing_view& view);
  /// True where slots of the next layer are freed at this point of a visit.
  [[nodiscard]] bool frees_slots(hotset::release_point now) const noexcept {
    return pre_evictor_ && pre_evictor_->options().release == now && expected_.depth != 0;
  }
  /// How many, where `next` is that layer. Pre: frees_slots at some point. Valid until the next call.
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

  std::vector<std::vector<float>> routers_;  ///< [layers] of [experts, hidden]; only if computed
  hotset::prediction_score score_;
  std::optional<hotset::any_routing_policy> routing_;
  std::optional<hotset::any_prefetch_policy> prefetcher_;
  std::optional<hotset::active_evict> pre_evictor_;
  std::optional<hotset::any_predictor> predictor_;
  std::vector<hotset::expert_id> router_choice_;  ///< of the visit, where its ids are bent
  std::vector<hotset::expert_id> bent_;           ///< what they become
  std::vector<hotset::prefetch_request> requests_;
  hotset::forecast expected_{};
};

/// Shares what a token's remaining ranks weigh among them: ids of -1 weigh nothing, the others sum to what all did.
void renormalise(std::span<const std::int32_t> ids, std::span<float> weights, std::size_t top_k);

}  // namespace tiny_moe
