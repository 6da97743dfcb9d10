// SPDX-License-Identifier: Apache-2.0
#include "lab/replay/belady_bypass.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "lab/errors.hpp"
#include "lab/sizes.hpp"

namespace hotset::lab {

namespace {

/// A layout with the same pools, each with a slot for every expert of its layers.
pool_layout with_room_for_all(const pool_layout& layout) {
  auto shape = layout.shape();
  shape.layer_size_class.clear();
  std::vector<pool_id> pools;
  for (const auto layer : each<layer_id>(shape.layers)) {
    const auto at = std::find(pools.begin(), pools.end(), layout.pool_of_layer(layer));
    shape.layer_size_class.push_back(static_cast<size_class_id>(at - pools.begin()));
    if (at == pools.end()) pools.push_back(layout.pool_of_layer(layer));
  }
  const auto every_key = static_cast<std::int64_t>(shape.keys());
  const std::vector<std::int64_t> slots(pools.size(), every_key);
  return pool_layout::shared_by_size_class(shape, slots).value();
}

}  // namespace

belady_bypass::belady_bypass(const pool_layout& layout, const belady::config& known)
    : roomy_(with_room_for_all(layout)),
      order_(roomy_, known),
      pools_(roomy_.pools()),
      residents_(roomy_.slots()) {
  const auto& shape = roomy_.shape();
  if (known.validate(shape))
    throw usage_error("belady_bypass needs the future of the trace that is replayed");
  for (const auto layer : each<layer_id>(shape.layers))
    pools_[roomy_.pool_of_layer(layer)].slots =
        static_cast<std::size_t>(layout.at(layout.pool_of_layer(layer)).slots);
  unique_ = unique_ids(shape.expert_count(), shape.ids_per_visit());
  experts_.resize(shape.distinct_per_visit());
  places_.resize(experts_.size());
  in_order_.resize(experts_.size());
  gone_.resize(experts_.size());
  seen_.resize(shape.keys());
  evicted_in_.resize(shape.keys());
  stats_.per_layer.resize(shape.layer_count());
}

status belady_bypass::visit(const routing_view& view) {
  const auto& shape = roomy_.shape();
  if (view.layer < 0 || view.layer >= shape.layers) return status::invalid_visit;
  if (last_step_ != view.step) {
    last_step_ = view.step;
    step_has_miss_ = false;
    ++stats_.steps;
  }
  const auto used = distinct(view);
  count_uses(view, used.size(), use(view, used));
  shed(view);
  return status::ok;
}

/// Distinct experts of the visit in order of last use.
std::span<const expert_id> belady_bypass::distinct(const routing_view& view) noexcept {
  const auto count = std::size_t{unique_.collect(view.experts, experts_.data())};
  stats_.ignored_ids += unique_.ignored();
  if (!unique_.repeated()) return {experts_.data(), count};
  unique_.last_appearance_order(view.experts, places_.data());
  for (std::size_t i = 0; i < count; ++i) in_order_[i] = experts_[places_[i]];
  return {in_order_.data(), count};
}

/// Makes the experts resident regardless of the pool's size; returns the number of misses.
std::size_t belady_bypass::use(const routing_view& view,
                               std::span<const expert_id> experts) noexcept {
  const visit_context context = context_of(view);
  const auto first = roomy_.shape().index({view.layer, {}});
  used_.clear();
  fills_.clear();
  for (const auto expert : experts) {
    const auto slot = static_cast<slot_id>(first + index_of(expert));
    used_.push_back(slot);
    if (residents_.test(slot)) continue;
    residents_.set(slot);
    fills_.push_back({.key = {view.layer, expert}, .slot = slot});
    count_miss(slot, view.step, stats_.per_layer[index_of(view.layer)]);
  }
  order_.on_visit({.context = context, .used = used_, .fills = fills_, .experts = experts});
  pools_[context.pool].used += fills_.size();
  return fills_.size();
}

visit_context belady_bypass::context_of(const routing_view& view) const noexcept {
  return {.layer = view.layer,
          .pool = roomy_.pool_of_layer(view.layer),
          .step = view.step,
          .ordinal = view.ordinal,
          .kind = view.kind};
}

void belady_bypass::count_miss(slot_id slot, step_id step, layer_counts& of_layer) noexcept {
  const std::uint64_t compulsory = seen_[slot] == 0 ? 1 : 0;
  const std::uint64_t collision = evicted_in_[slot] == mark_of(step) ? 1 : 0;
  stats_.compulsory_misses += compulsory;
  stats_.collision_misses += collision;
  of_layer.compulsory += compulsory;
  of_layer.collisions += collision;
  seen_[slot] = 1;
}

void belady_bypass::count_uses(const routing_view& view, std::size_t accesses,
                               std::size_t misses) noexcept {
  const auto hits = accesses - misses;
  ++stats_.visits;
  stats_.accesses += accesses;
  stats_.hits += hits;
  stats_.misses += misses;
  stats_.fills += misses;
  const auto bytes = misses * roomy_.shape().bytes_of(view.layer);
  stats_.bytes_demand = stats_.bytes_filled += bytes;
  auto& of_kind = stats_.by_kind[static_cast<std::size_t>(view.kind)];
  of_kind.accesses += accesses;
  of_kind.hits += hits;
  auto& of_layer = stats_.per_layer[index_of(view.layer)];
  of_layer.accesses += accesses;
  of_layer.hits += hits;
  of_layer.bytes_filled += bytes;
  if (misses != 0 && !std::exchange(step_has_miss_, true)) ++stats_.steps_with_miss;
}

/// Evicts what exceeds the pool's size after the visit.
void belady_bypass::shed(const routing_view& view) noexcept {
  const auto context = context_of(view);
  auto& pool = pools_[context.pool];
  if (pool.used <= pool.slots) return;
  const auto gone = std::span(gone_).first(pool.used - pool.slots);
  (void)order_.select_victims(context, residents_, gone);
  std::uint64_t bytes = 0;
  for (const auto slot : gone) {
    const auto key = roomy_.shape().key(index_of(slot));
    order_.on_evict(slot, key);
    residents_.reset(slot);
    evicted_in_[slot] = mark_of(view.step);
    bytes += roomy_.shape().bytes_of(key.layer);
    hash_ = (hash_ ^ index_of(slot)) * 0x9E3779B97F4A7C15ULL;
    hash_ ^= hash_ >> 29U;
  }
  pool.used = pool.slots;
  stats_.evictions += gone.size();
  transient_bytes_ = std::max(transient_bytes_, bytes);
}

std::string belady_bypass::note() const {
  return fmt::format("offline bound; transient slots beside the pool: {} at most",
                     size_text(transient_bytes_));
}

}  // namespace hotset::lab
