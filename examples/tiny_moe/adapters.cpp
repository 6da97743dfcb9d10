// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/adapters.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "hotset/adapters/reroute.hpp"
#include "hotset/core/error.hpp"

namespace tiny_moe {
namespace {

using hotset::invalid_config;

void check(const model_config& shape, const tuned_experts& tuned) {
  if (tuned.size() != shape.layers)
    throw invalid_config(
        fmt::format("an adapter of {} layers, accepted: {}", tuned.size(), shape.layers));
  for (std::size_t l = 0; l < tuned.size(); ++l)
    for (std::size_t i = 0; i < tuned[l].size(); ++i)
      if (tuned[l][i] < (i == 0 ? 0 : tuned[l][i - 1] + 1) ||
          static_cast<std::size_t>(tuned[l][i]) >= shape.experts)
        throw invalid_config(fmt::format("layer {}: expert {}, accepted: 0..{} in ascending order",
                                         l, tuned[l][i], shape.experts - 1));
}

std::vector<expert_tensors> experts_of(const model& weights, std::size_t layer) {
  std::vector<expert_tensors> out;
  for (std::size_t e = 0; e < weights.config().experts; ++e)
    out.push_back(weights.expert(layer, e));
  return out;
}

}  // namespace

adapter_weights::adapter_weights(const model_config& shape, std::string name, tuned_experts tuned,
                                 std::vector<std::uint16_t> halves)
    : name_(std::move(name)),
      tuned_(std::move(tuned)),
      tensor_halves_(shape.hidden_size * shape.inner_size),
      halves_(std::move(halves)) {
  check(shape, tuned_);
  std::size_t count = 0;
  for (const auto& of_layer : tuned_) {
    first_.push_back(count);
    count += of_layer.size();
  }
  if (halves_.size() != count * 3 * tensor_halves_)
    throw invalid_config(fmt::format("adapter {}: {} weights of {} experts, accepted: {}", name_,
                                     halves_.size(), count, count * 3 * tensor_halves_));
}

expert_tensors adapter_weights::expert(std::size_t layer, std::size_t place) const noexcept {
  const auto* const first = halves_.data() + (first_[layer] + place) * 3 * tensor_halves_;
  return {.gate = first, .up = first + tensor_halves_, .down = first + 2 * tensor_halves_};
}

merged_experts::merged_experts(const model& weights, const adapter_weights& adapter)
    : experts_(weights.config().experts) {
  for (std::size_t l = 0; l < weights.config().layers; ++l) {
    auto of_layer = experts_of(weights, l);
    const auto& tuned = adapter.tuned()[l];
    for (std::size_t i = 0; i < tuned.size(); ++i)
      of_layer[static_cast<std::size_t>(tuned[i])] = adapter.expert(l, i);
    all_.insert(all_.end(), of_layer.begin(), of_layer.end());
  }
}

void merged_experts::run(const visit_inputs& visit, visit_compute& compute) {
  const auto first = static_cast<std::size_t>(visit.layer) * experts_;
  compute.all([&](std::int32_t expert) { return all_[first + static_cast<std::size_t>(expert)]; });
}

resident_adapters::resident_adapters(const model& weights,
                                     std::span<const adapter_weights* const> adapters)
    : experts_(weights.config().experts) {
  std::size_t most = 0;
  for (const auto* adapter : adapters)
    for (const auto& tuned : adapter->tuned()) most = std::max(most, tuned.size());
  for (std::size_t l = 0; l < weights.config().layers; ++l) {
    auto redirect =
        hotset::expert_redirect::create({.experts = static_cast<std::int32_t>(experts_),
                                         .adapters = static_cast<std::int32_t>(adapters.size()),
                                         .most_tuned = static_cast<std::int32_t>(most)})
            .value();
    auto of_layer = experts_of(weights, l);
    of_layer.resize(static_cast<std::size_t>(redirect.virtual_experts()));
    for (std::size_t a = 0; a < adapters.size(); ++a) {
      const auto index = static_cast<std::int32_t>(a);
      (void)redirect.assign(index, adapters[a]->tuned()[l]);
      const auto begin = static_cast<std::size_t>(redirect.first_place(index));
      for (std::size_t i = 0; i < adapters[a]->tuned()[l].size(); ++i)
        of_layer[begin + i] = adapters[a]->expert(l, i);
    }
    redirects_.push_back(std::move(redirect));
    all_.insert(all_.end(), of_layer.begin(), of_layer.end());
  }
}

std::size_t resident_adapters::virtual_experts() const noexcept {
  return static_cast<std::size_t>(redirects_.front().virtual_experts());
}

void resident_adapters::run(const visit_inputs& visit, visit_compute& compute) {
  const auto layer = static_cast<std::size_t>(visit.layer);
  const auto& redirect = redirects_[layer];
  adapter_of_row_.clear();
  for (const auto id : visit.adapters) adapter_of_row_.push_back(static_cast<std::int32_t>(id) - 1);
  const auto done = hotset::reroute({.rows = redirect.rows().data(),
                                     .adapters = redirect.adapters(),
                                     .experts = redirect.experts()},
                                    visit.ids, adapter_of_row_, visit.ids);
  if (done.code != hotset::status::ok || done.refused != 0)
    throw provider_error(
        fmt::format("layer {}: {} ids of adapters that are not here", layer, done.refused));
  const auto first = layer * virtual_experts();
  compute.all([&](std::int32_t expert) { return all_[first + static_cast<std::size_t>(expert)]; });
}

}  // namespace tiny_moe
