// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/experts/adapter_experts.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "hotset/adapters/reroute.hpp"

namespace tiny_moe {
namespace {

std::size_t most_tuned(std::span<const adapter_weights* const> adapters) {
  std::size_t most = 0;
  for (const auto* adapter : adapters)
    for (const auto& tuned : adapter->tuned()) most = std::max(most, tuned.size());
  return most;
}

}  // namespace

adapter_experts::adapter_experts(const model& weights,
                                 std::span<const adapter_weights* const> adapters) {
  const auto& shape = weights.config();
  for (std::size_t l = 0; l < shape.layers; ++l) {
    auto redirect = hotset::expert_redirect::create(
                        {.experts = static_cast<std::int32_t>(shape.experts),
                         .adapters = static_cast<std::int32_t>(adapters.size()),
                         .most_tuned = static_cast<std::int32_t>(most_tuned(adapters))})
                        .value();
    const auto first = tensors_.size();
    tensors_.resize(first + static_cast<std::size_t>(redirect.virtual_experts()));
    for (std::size_t e = 0; e < shape.experts; ++e)
      tensors_[first + e] = weights.expert_bytes(l, e);
    for (std::size_t a = 0; a < adapters.size(); ++a) {
      const auto& tuned = adapters[a]->tuned()[l];
      const auto index = static_cast<std::int32_t>(a);
      (void)redirect.assign(index, tuned);  // cannot fail: adapter_weights has checked them
      const auto place = first + index_of(redirect.first_place(index));
      for (std::size_t i = 0; i < tuned.size(); ++i)
        tensors_[place + i] = adapters[a]->expert_bytes(l, i);
    }
    redirects_.push_back(std::move(redirect));
  }
}

std::size_t adapter_experts::virtual_experts() const noexcept {
  return static_cast<std::size_t>(redirects_.front().virtual_experts());
}

void adapter_experts::reroute(const visit_inputs& visit,
                              std::vector<std::int32_t>& adapter_of_row) const {
  const auto& redirect = redirects_[visit.layer];
  adapter_of_row.clear();
  for (const auto id : visit.adapters) adapter_of_row.push_back(static_cast<std::int32_t>(id) - 1);
  const auto done = hotset::reroute({.rows = redirect.rows().data(),
                                     .adapters = redirect.adapters(),
                                     .experts = redirect.experts()},
                                    visit.ids, adapter_of_row, visit.ids);
  if (done.code != hotset::status::ok || done.refused != 0)
    throw provider_error(
        fmt::format("layer {}: {} ids of adapters that are not here", visit.layer, done.refused));
}

std::span<const hotset::tensor_bytes> adapter_experts::tensors(
    hotset::expert_key key) const noexcept {
  if (!is_within(key.layer, redirects_.size()) || !is_within(key.expert, virtual_experts()))
    return {};
  const auto& found = tensors_[index_of(key.layer) * virtual_experts() + index_of(key.expert)];
  return found[0].empty() ? std::span<const hotset::tensor_bytes>{} : std::span(found);
}

expert_tensors adapter_experts::expert(std::size_t layer, std::size_t expert) const noexcept {
  const auto& of = tensors_[layer * virtual_experts() + expert];
  const auto halves = [&](std::size_t t) {
    return reinterpret_cast<const std::uint16_t*>(of[t].data());
  };
  return {.gate = halves(0), .up = halves(1), .down = halves(2)};
}

void resident_adapters::run(const visit_inputs& visit, visit_compute& compute) {
  experts_.reroute(visit, adapter_of_row_);
  const auto layer = index_of(visit.layer);
  compute.all([&](std::int32_t expert) {
    return experts_.expert(layer, static_cast<std::size_t>(expert));
  });
}

}  // namespace tiny_moe
