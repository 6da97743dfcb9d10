// SPDX-License-Identifier: Apache-2.0
#include "cuda_decode/experts/paged_experts.hpp"

#include <string>

#include "cuda_decode/decoder/device_memory.hpp"
#include "cuda_decode/program/options.hpp"
#include "hotset/policy/policy_config.hpp"
#include "hotset/registry/policy_registry.hpp"

namespace cuda_decode {

hotset::any_eviction_policy::config eviction_named(std::string_view text) {
  const auto& known = hotset::policies();
  const auto row = known.eviction_of(text);
  if (row && (*row)->traits.needs_future)
    throw usage_error("--eviction: '" + std::string(text) +
                      "' needs the future, accepted: policies that an engine can run");
  auto made = known.make_eviction(text);
  if (!made) throw usage_error("--eviction: " + made.error().message);
  return *std::move(made);
}

hotset::any_eviction_policy::config eviction_for(std::string_view text,
                                                 const hotset::geometry& shape) {
  auto named = eviction_named(text);
  if (const auto bad = hotset::validate_for(named, shape))
    throw usage_error("--eviction: " + bad->message);
  return named;
}

paged_experts::paged_experts(hotset::cuda::runtime& api, const hotset::pool_layout& layout,
                             const std::vector<hotset::expert_layout>& layouts,
                             const hotset::memory_expert_source& source,
                             const hotset::cuda::pinned_memory& pages, const config& setup)
    : api_(api),
      bank_(
          hotset::cuda::slot_bank::create(api, layout, layouts, {.device = setup.device}).value()),
      copies_(backend::create(api, source, bank_, pages, {.mode = setup.mode}).value()),
      rows_(hotset::cuda::map_rows::create(api, layout.shape(), {.device = setup.device}, failures_)
                .value()),
      cache_(hotset::pager<hotset::any_eviction_policy>(
                 {.layout = layout, .eviction = eviction_for(setup.eviction, layout.shape())}),
             *copies_),
      visit_(cache_.make_visit()) {}

void paged_experts::serve(const hotset::routing_view& visit, hotset::cuda::stream& stream,
                          const enqueue_kernels& kernels) {
  const auto served = cache_.serve(visit, stream, visit_, [&](const hotset::visit_group& group) {
    require_uploaded(rows_.update(cache_, visit.layer, stream));
    kernels(group.tokens());
  });
  require_resolved(served, visit.layer);
}

void paged_experts::publish(hotset::cuda::stream& stream) {
  const auto layers = cache_.pager().layout().shape().layers;
  require_uploaded(rows_.update(cache_, hotset::layer_id{0}, hotset::layer_id{layers}, stream));
}

expert_traffic paged_experts::traffic() const noexcept {
  const auto stats = cache_.stats();
  return {stats.accesses, stats.hits, copies_->counts().bytes_direct};
}

void paged_experts::require_resolved(hotset::status state, hotset::layer_id layer) const {
  if (state == hotset::status::ok) return;
  const auto trouble = copies_->trouble();
  throw device_error("layer " + to_string(layer) + ": " + std::string(hotset::describe(state)) +
                     (trouble ? ": " + trouble->message : std::string()));
}

void paged_experts::require_uploaded(hotset::cuda::error_code code) const {
  require(api_, code, failures_.happened() ? failures_.first().call : "map_rows::update");
}

}  // namespace cuda_decode
