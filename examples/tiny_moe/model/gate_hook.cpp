// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/model/gate_hook.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include <fmt/format.h>

#include "hotset/core/error.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/status.hpp"
#include "hotset/registry/pre_eviction.hpp"
#include "lab/errors.hpp"

namespace tiny_moe {
namespace {

/// Converts the engine's routers to the file's order, [experts, hidden].
std::vector<std::vector<float>> routers_of(const model& weights) {
  const model_config& config = weights.config();
  std::vector<std::vector<float>> out(config.layers);
  for (std::size_t l = 0; l < config.layers; ++l) {
    const auto& router = weights.layer(l).router;
    out[l].resize(router.size());
    for (std::size_t i = 0; i < config.hidden_size; ++i)
      for (std::size_t e = 0; e < config.experts; ++e)
        out[l][e * config.hidden_size + i] = router[i * config.experts + e];
  }
  return out;
}

/// Refuses policies that need scores with adapters: the router scores only its own experts.
void check_scores(const model& weights, const hotset::geometry& shape, const std::string& who) {
  if (static_cast<std::size_t>(shape.experts) == weights.config().experts) return;
  throw hotset::lab::usage_error(
      fmt::format("{} goes by the router's scores, accepted with adapters: what goes by ids", who));
}

}  // namespace

gate_hook::gate_hook(const model& weights, const hotset::geometry& shape, const gate_config& config,
                     bool tells_forecasts)
    : score_(shape) {
  if (config.routing) take_routing(weights, shape, config);
  if (config.prefetch) take_prefetcher(shape, *config.prefetch);
  if (config.pre_eviction) {
    hotset::require_valid(config.pre_eviction->validate());
    pre_evictor_.emplace(shape, *config.pre_eviction);
  }
  const auto depth = depth_wanted(tells_forecasts);
  if (depth == 0 || shape.layers == 1) return;
  take_predictor(weights, shape, hotset::with_depth(config.predictor, depth));
}

void gate_hook::take_routing(const model& weights, const hotset::geometry& shape,
                             const gate_config& config) {
  routing_.emplace(shape, *config.routing);
  check_scores(weights, shape, fmt::format("routing policy {}", routing_->held_name()));
  if (const auto bad = hotset::check_routing(routing_->held_name(), routing_->facts(),
                                             config.pre_eviction.has_value(), "--pre-eviction"))
    throw hotset::lab::usage_error(bad->message);
  router_choice_.reserve(shape.ids_per_visit());
  bent_.reserve(shape.ids_per_visit());
}

void gate_hook::take_prefetcher(const hotset::geometry& shape,
                                const hotset::any_prefetch_policy::config& config) {
  prefetcher_.emplace(shape, config);
  requests_.resize(prefetcher_->most_requests());
  if (prefetcher_->facts().needs == hotset::forecast_need::truth)
    throw hotset::lab::usage_error(
        fmt::format("prefetch policy {} needs the future, accepted here: policies that an engine "
                    "can run",
                    prefetcher_->held_name()));
}

/// The deepest forecast that a policy uses; 0 if none does.
std::int32_t gate_hook::depth_wanted(bool tells_forecasts) const noexcept {
  const std::int32_t next = pre_evictor_ || tells_forecasts ? 1 : 0;
  if (!prefetcher_ || prefetcher_->facts().needs != hotset::forecast_need::probabilities)
    return next;
  return std::max(next, prefetcher_->depth());
}

void gate_hook::take_predictor(const model& weights, const hotset::geometry& shape,
                               hotset::any_predictor::config chosen) {
  const auto& needs = chosen.traits;
  if (needs.needs_scores || needs.needs_routers || needs.needs_hidden)
    check_scores(weights, shape, fmt::format("predictor {}", chosen.name));
  chosen.d_model = static_cast<std::int32_t>(weights.config().hidden_size);
  if (chosen.traits.takes_embeddings) chosen.embeddings = weights.embedding();
  if (chosen.traits.needs_routers) {
    routers_ = routers_of(weights);
    chosen.routers.assign(routers_.begin(), routers_.end());
  }
  auto made = hotset::any_predictor::create(shape, chosen);
  if (!made) throw hotset::lab::usage_error(made.error().message);
  predictor_.emplace(*std::move(made));
}

void gate_hook::route(const visit_inputs& visit, hotset::routing_view& view,
                      const hotset::residency_view& residents) {
  if (!routing_) return;
  const hotset::id_view<hotset::expert_id> routed(visit.ids);
  router_choice_.assign(routed.begin(), routed.end());
  bent_ = router_choice_;
  const auto done = routing_->route(view, residents, bent_, visit.weights);
  if (done != hotset::status::ok) {
    throw std::runtime_error(
        fmt::format("layer {}: routing: {}", visit.layer, std::string(hotset::describe(done))));
  }
  std::ranges::transform(bent_, visit.ids.begin(), hotset::number<hotset::expert_id>);
  view.router_choice = router_choice_;
}

void gate_hook::look_ahead(const hotset::routing_view& view) {
  const bool opens = view.layer == hotset::before_layers;
  if (prefetcher_ && !opens) {
    score_.routed(view);
    prefetcher_->observe(view);
  }
  const bool is_asked = predictor_ && (!opens || predictor_->facts().opens_steps);
  expected_ = is_asked ? predictor_->expect(view) : hotset::forecast{};
}

void gate_hook::ended(hotset::sequence_id sequence) noexcept {
  if (predictor_) predictor_->on_sequence_end(sequence);
}

std::span<const hotset::prefetch_request> gate_hook::propose(const hotset::routing_view& view) {
  if (!prefetcher_) return {};
  const bool by_scores = prefetcher_->facts().needs == hotset::forecast_need::probabilities;
  if (view.layer == hotset::before_layers && !by_scores) return {};
  const auto count = prefetcher_->propose(view, expected_, requests_);
  const auto wanted = std::span(requests_).first(count);
  for (const auto& request : wanted) score_.requested(request);
  return wanted;
}

void renormalise(std::span<const std::int32_t> ids, std::span<float> weights, std::size_t top_k) {
  for (std::size_t first = 0; first < ids.size(); first += top_k) {
    float all = 0.0F;
    float kept = 0.0F;
    for (std::size_t i = first; i < first + top_k; ++i) {
      all += weights[i];
      if (ids[i] >= 0) kept += weights[i];
    }
    if (kept == all || kept <= 0.0F) continue;
    for (std::size_t i = first; i < first + top_k; ++i)
      weights[i] = ids[i] < 0 ? 0.0F : weights[i] * (all / kept);
  }
}

}  // namespace tiny_moe
