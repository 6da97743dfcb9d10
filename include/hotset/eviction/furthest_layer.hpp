// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Evicts a slot of the layer that runs again last.
///
/// Rule: order by the distance (l - l_now - 1) mod L of the key's layer, furthest first: the running layer has L - 1,
///   the next layer 0. Then recency position.
/// Source: FLD in SpecMD appendix B, from HOBBIT.
/// Deviations: none.
/// Exact: yes (never changes what is computed).
/// Cost: O(1) per hit and fill; a victim costs O(1) plus skipped ineligible slots.

#include <cstddef>
#include <span>
#include <string_view>

#include "hotset/eviction/order/layer_lists.hpp"
#include "hotset/eviction/order/recency_list.hpp"
#include "hotset/eviction/order/sparse_bits.hpp"
#include "hotset/policy/eviction_policy.hpp"
#include "hotset/policy/policy_config.hpp"

namespace hotset {

class furthest_layer {
 public:
  using config = no_options;
  static constexpr std::string_view name = "furthest_layer";
  static constexpr eviction_traits traits{.moves_by_itself = true};

  explicit furthest_layer(const pool_layout& layout, const config& = {})
      : layers_(layout.shape().layer_count()),
        lists_(layout),
        order_(layout.slots(), lists_.count()),
        used_(layout.pools() * layers_) {}

  void on_visit(const visit_event& e) noexcept {
    for (const auto& f : e.fills)
      if (f.victim != no_key) on_evict(f.slot, f.victim);
    if (e.used.empty()) return;
    order_.move_to_back(lists_.in_pool(e.context.layer, e.context.pool), e.used);
    used_.set(place(e.context.pool, e.context.layer));
  }
  void on_prefetch(const prefetch_event& e) noexcept {
    order_.push_back(lists_.of(e.key.layer, e.slot), e.slot);
    used_.set(place(e.pool, e.key.layer));
  }
  void on_evict(slot_id slot, expert_key key) noexcept {
    order_.erase(slot);
    const auto list = lists_.of(key.layer, slot);
    if (order_.front(list) == no_slot) used_.reset(place(lists_.pool(list), key.layer));
  }
  void on_move(slot_id from, slot_id to) noexcept { order_.take_place(from, to); }

  [[nodiscard]] std::size_t select_victims(const visit_context& context, const slot_mask& eligible,
                                           std::span<slot_id> out) noexcept {
    std::size_t count = 0;
    const auto first = place(context.pool, layer_id{});
    const auto take = [&](std::size_t n) {
      const auto list = lists_.in_pool(static_cast<layer_id>(n - first), context.pool);
      count += order_.select(list, eligible, out.subspan(count));
      return count < out.size();
    };
    // Descending distance: the layers from the running one down, then from the last one down.
    const auto done = first + layers_until(context.layer);
    used_.each_down(first, done, take);
    if (count < out.size()) used_.each_down(done, first + layers_, take);
    return count;
  }

 private:
  [[nodiscard]] std::size_t place(pool_id pool, layer_id layer) const noexcept {
    return index_of(pool) * layers_ + index_of(layer);
  }

  std::size_t layers_;
  layer_lists lists_;
  recency_list order_;  // one list per layer and precision
  sparse_bits used_;    // [pool, layer] layers that hold slots of the pool
};

static_assert(is_eviction_policy<furthest_layer>());

}  // namespace hotset
