// SPDX-License-Identifier: Apache-2.0
#include "hotset/sim/replay/belady_bypass.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "hotset/sim/errors.hpp"
#include "hotset/sim/sizes.hpp"

namespace hotset::inline v0::sim {

belady_bypass::belady_bypass(pool_layout layout, std::shared_ptr<const future_uses> future)
    : layout_(std::move(layout)), future_(std::move(future)) {
  const auto& shape = layout_.shape();
  if (!future_ || future_->keys() != shape.keys())
    throw usage_error("belady_bypass needs the future of the trace that is replayed");
  const auto most_ids = shape.ids_per_visit();
  const auto distinct = std::min(shape.expert_count(), most_ids);
  unique_ = unique_ids(shape.expert_count(), most_ids);
  experts_.resize(distinct);
  order_.resize(distinct);
  cursor_.resize(shape.keys());
  for (std::size_t k = 0; k < cursor_.size(); ++k) cursor_[k] = future_->first(k);
  pools_.resize(layout_.pools());
  where_.resize(shape.keys());
  seen_.resize(shape.keys());
  evicted_in_.resize(shape.keys());
  stats_.per_layer.resize(shape.layer_count());
}

std::uint32_t belady_bypass::next_use(std::size_t key, std::uint64_t ordinal) {
  const auto uses = future_->ordinals();
  auto& at = cursor_[key];
  while (uses[at] <= ordinal && uses[at] != future_uses::never) ++at;
  return uses[at];
}

status belady_bypass::visit(const routing_view& view) {
  const auto& shape = layout_.shape();
  if (view.layer < 0 || view.layer >= shape.layers) return status::invalid_visit;
  const auto count = unique_.collect(view.experts, experts_.data());
  unique_.last_appearance_order(view.experts, order_.data());
  if (last_step_ != view.step) {
    last_step_ = view.step;
    step_has_miss_ = false;
    ++stats_.steps;
  }
  ++stats_.visits;
  stats_.ignored_ids += unique_.ignored();
  const auto pool = layout_.pool_of_layer(view.layer);
  std::uint64_t hits = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto key = shape.index({view.layer, experts_[order_[i]]});
    where_[key] ? ++hits : (count_miss(key, view), 0ULL);
    use(key, view, pools_[index_of(pool)]);
  }
  const auto misses = count - hits;
  stats_.accesses += count;
  stats_.hits += hits;
  stats_.misses += misses;
  stats_.by_kind[static_cast<std::size_t>(view.kind)].accesses += count;
  stats_.by_kind[static_cast<std::size_t>(view.kind)].hits += hits;
  stats_.per_layer[index_of(view.layer)].accesses += count;
  stats_.per_layer[index_of(view.layer)].hits += hits;
  if (misses != 0 && !std::exchange(step_has_miss_, true)) ++stats_.steps_with_miss;
  transient_bytes_ = std::max(transient_bytes_, shed(pool, view));
  return status::ok;
}

void belady_bypass::count_miss(std::size_t key, const routing_view& view) {
  stats_.compulsory_misses += seen_[key] == 0 ? 1U : 0U;
  stats_.collision_misses += evicted_in_[key] == mark_of(view.step) ? 1U : 0U;
  seen_[key] = 1;
  ++stats_.fills;
  stats_.bytes_filled += layout_.shape().bytes_of(view.layer);
  stats_.bytes_demand = stats_.bytes_filled;
}

void belady_bypass::use(std::size_t key, const routing_view& view, std::set<resident>& pool) {
  if (where_[key]) pool.erase(*where_[key]);
  where_[key] = resident{next_use(key, view.ordinal), ++clock_, static_cast<std::uint32_t>(key)};
  pool.insert(*where_[key]);
}

/// Gives up what the pool cannot keep; returns the bytes that stood beside it during the visit.
std::uint64_t belady_bypass::shed(pool_id p, const routing_view& view) {
  auto& pool = pools_[index_of(p)];
  std::uint64_t bytes = 0;
  while (pool.size() > static_cast<std::size_t>(layout_.at(p).slots)) {
    const auto gone = *pool.begin();
    pool.erase(pool.begin());
    where_[gone.key].reset();
    evicted_in_[gone.key] = mark_of(view.step);
    bytes += layout_.shape().bytes_of(layout_.shape().key(gone.key).layer);
    ++stats_.evictions;
    hash_ = (hash_ ^ gone.key) * 0x9E3779B97F4A7C15ULL;
    hash_ ^= hash_ >> 29U;
  }
  return bytes;
}

status belady_bypass::visit_within(const routing_view&, std::uint64_t) {
  return status::invalid_argument;
}

std::vector<std::string> belady_bypass::notes() const {
  return {fmt::format("offline bound; transient slots beside the pool: {} at most",
                      size_text(transient_bytes_))};
}

}  // namespace hotset::inline v0::sim
