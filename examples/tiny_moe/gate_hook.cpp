// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/gate_hook.hpp"

#include <stdexcept>
#include <string>

#include <fmt/format.h>

#include "hotset/core/status.hpp"
#include "hotset/sim/errors.hpp"

namespace tiny_moe {
namespace {

/// The file's order of the router, [experts, hidden], from the engine's.
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

}  // namespace

gate_hook::gate_hook(const model& weights, const hotset::geometry& shape, const gate_config& config)
    : score_(shape) {
  if (config.routing) routing_.emplace(shape, *config.routing);
  if (!config.prefetch) return;
  prefetcher_.emplace(shape, *config.prefetch);
  requests_.resize(prefetcher_->most_requests());
  if (prefetcher_->needs() == hotset::forecast_need::truth) {
    throw hotset::sim::usage_error(
        fmt::format("prefetch policy {} needs the future, accepted here: policies that an engine "
                    "can run",
                    prefetcher_->held_name()));
  }
  if (prefetcher_->needs() == hotset::forecast_need::nothing) return;
  auto chosen = hotset::with_depth(config.predictor, prefetcher_->depth());
  if (chosen.traits.needs_routers) {
    routers_ = routers_of(weights);
    chosen.d_model = static_cast<std::int32_t>(weights.config().hidden_size);
    chosen.routers.assign(routers_.begin(), routers_.end());
  }
  auto made = hotset::any_predictor::create(shape, chosen);
  if (!made) throw hotset::sim::usage_error(made.reason().message);
  predictor_.emplace(*std::move(made));
}

void gate_hook::route(const visit_inputs& visit, hotset::routing_view& view,
                      const hotset::residency_view& residents) {
  if (!routing_) return;
  const auto done = routing_->route(view, residents, visit.ids, visit.weights);
  if (done != hotset::status::ok) {
    throw std::runtime_error(
        fmt::format("layer {}: routing: {}", visit.layer, std::string(hotset::describe(done))));
  }
}

std::span<const hotset::prefetch_request> gate_hook::propose(const hotset::routing_view& view) {
  if (!prefetcher_) return {};
  score_.routed(view);
  prefetcher_->observe(view);
  expected_ = predictor_ ? predictor_->expect(view) : hotset::forecast{};
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
