// SPDX-License-Identifier: Apache-2.0
#include "cuda_decode/experts/static_experts.hpp"

#include <algorithm>
#include <numeric>
#include <string>

#include "cuda_decode/decoder/device_memory.hpp"

namespace cuda_decode {
namespace {

using hotset::expert_id;
using hotset::layer_id;
using hotset::slot_id;

std::int64_t fetch_slots(const hotset::geometry& shape, offload_fetch fetch) noexcept {
  const auto routed = std::int64_t{shape.max_tokens_per_visit} * shape.top_k;
  return fetch == offload_fetch::layer ? shape.experts
                                       : std::min<std::int64_t>(routed, shape.experts);
}

hotset::cuda::slot_bank make_bank(hotset::cuda::runtime& api, const hotset::geometry& shape,
                                  const std::vector<hotset::expert_layout>& layouts,
                                  const static_config& setup) {
  if (setup.resident_layers < 0 || setup.resident_layers > shape.layers)
    throw hotset::invalid_config(std::to_string(setup.resident_layers) +
                                 " resident layers, accepted: 0.." + std::to_string(shape.layers));
  const auto layout = hotset::pool_layout::shared(shape, static_slots(shape, setup)).value();
  return hotset::cuda::slot_bank::create(api, layout, layouts, {.device = setup.device}).value();
}

}  // namespace

std::int64_t static_slots(const hotset::geometry& shape, const static_config& setup) noexcept {
  const auto resident = std::int64_t{setup.resident_layers} * shape.experts;
  return setup.resident_layers == shape.layers ? resident
                                               : resident + fetch_slots(shape, setup.fetch);
}

std::int32_t static_layers_within(const hotset::geometry& shape, std::int64_t slots,
                                  offload_fetch fetch) noexcept {
  auto layers = shape.layers;
  while (layers >= 0 && static_slots(shape, {.resident_layers = layers, .fetch = fetch}) > slots)
    --layers;
  return layers;
}

static_experts::static_experts(hotset::cuda::runtime& api, const hotset::geometry& shape,
                               const std::vector<hotset::expert_layout>& layouts,
                               const hotset::memory_expert_source& source,
                               const hotset::cuda::pinned_memory& pages, const static_config& setup,
                               hotset::cuda::stream& stream)
    : api_(api),
      shape_(shape),
      resident_layers_(setup.resident_layers),
      fetch_(setup.fetch),
      bank_(make_bank(api, shape, layouts, setup)),
      copies_(
          backend::create(api, source, bank_, pages, {.mode = hotset::cuda::copy_mode::same_stream})
              .value()),
      rows_(
          hotset::cuda::map_rows::create(api, shape, {.device = setup.device}, failures_).value()),
      map_(shape),
      unique_(static_cast<std::size_t>(shape.experts),
              static_cast<std::size_t>(shape.max_tokens_per_visit) *
                  static_cast<std::size_t>(shape.top_k)),
      all_(static_cast<std::size_t>(shape.experts)),
      tokens_(static_cast<std::size_t>(shape.max_tokens_per_visit)) {
  std::iota(all_.begin(), all_.end(), expert_id{0});
  std::iota(tokens_.begin(), tokens_.end(), 0U);
  wanted_.reserve(all_.size());
  fills_.reserve(all_.size());
  for (const auto l : hotset::each<layer_id>(resident_layers_))
    fetch(l, all_, slot_id{number(l) * shape.experts}, stream);
  publish(stream);
  require(api, api.synchronize_stream(stream.handle()), "cudaStreamSynchronize");
  bytes_before_ = copies_->counts().bytes_direct;
}

void static_experts::serve(const hotset::routing_view& visit, hotset::cuda::stream& stream,
                           const enqueue_kernels& kernels) {
  make_resident(visit, stream);
  kernels(std::span(tokens_).first(visit.experts.size() / static_cast<std::size_t>(shape_.top_k)));
}

void static_experts::make_resident(const hotset::routing_view& visit,
                                   hotset::cuda::stream& stream) {
  wanted_.clear();
  (void)unique_.collect(visit.experts,
                        [&](std::size_t /*at*/, expert_id id) { wanted_.push_back(id); });
  counts_.accesses += wanted_.size();
  if (visit.layer < resident_layers_) {
    counts_.hits += wanted_.size();
    return;
  }
  fetch(visit.layer, fetch_ == offload_fetch::layer ? all_ : wanted_,
        slot_id{resident_layers_ * shape_.experts}, stream);
  require_ok(rows_.update(map_, visit.layer, stream));
}

void static_experts::publish(hotset::cuda::stream& stream) {
  require_ok(rows_.update(map_, layer_id{0}, layer_id{shape_.layers}, stream));
}

expert_traffic static_experts::traffic() const noexcept {
  auto out = counts_;
  out.bytes_moved = copies_->counts().bytes_direct - bytes_before_;
  return out;
}

void static_experts::fetch(layer_id layer, std::span<const expert_id> experts, slot_id first_slot,
                           hotset::cuda::stream& stream) {
  const auto row = map_.slots.row(layer);
  std::ranges::fill(row, hotset::no_slot);
  ++map_.versions[layer];
  fills_.clear();
  for (const auto e : experts) {
    const auto slot = first_slot + static_cast<std::int32_t>(fills_.size());
    fills_.push_back({.key = {layer, e}, .slot = slot});
    row[index_of(e)] = slot;
  }
  if (fills_.empty()) return;
  const auto sent = copies_->submit(fills_, stream, hotset::urgency::now);
  if (sent.accepted == fills_.size() && copies_->fence(stream, sent.id) == hotset::status::ok)
    return;
  const auto trouble = copies_->trouble();
  throw device_error("layer " + to_string(layer) + ": the experts were not copied: " +
                     (trouble ? trouble->message : "the host copy is not page-locked"));
}

void static_experts::require_ok(hotset::cuda::error_code code) const {
  require(api_, code, failures_.happened() ? failures_.first().call : "map_rows::update");
}

}  // namespace cuda_decode
