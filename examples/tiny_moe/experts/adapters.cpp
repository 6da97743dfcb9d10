// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/experts/adapters.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

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
      if (tuned[l][i] <= (i == 0 ? hotset::no_expert : tuned[l][i - 1]) ||
          tuned[l][i] >= shape.experts)
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
  const auto* const first = first_half(layer, place);
  return {.gate = first, .up = first + tensor_halves_, .down = first + 2 * tensor_halves_};
}

std::array<std::span<const std::byte>, 3> adapter_weights::expert_bytes(
    std::size_t layer, std::size_t place) const noexcept {
  const auto tensor = [&](std::size_t t) {
    return std::as_bytes(std::span(first_half(layer, place) + t * tensor_halves_, tensor_halves_));
  };
  return {tensor(0), tensor(1), tensor(2)};
}

merged_experts::merged_experts(const model& weights, const adapter_weights& adapter)
    : experts_(weights.config().experts) {
  for (std::size_t l = 0; l < weights.config().layers; ++l) {
    auto of_layer = experts_of(weights, l);
    const auto& tuned = adapter.tuned()[l];
    for (std::size_t i = 0; i < tuned.size(); ++i)
      of_layer[index_of(tuned[i])] = adapter.expert(l, i);
    all_.insert(all_.end(), of_layer.begin(), of_layer.end());
  }
}

void merged_experts::run(const visit_inputs& visit, visit_compute& compute) {
  const auto first = index_of(visit.layer) * experts_;
  compute.all([&](std::int32_t expert) { return all_[first + static_cast<std::size_t>(expert)]; });
}

}  // namespace tiny_moe
