// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Evicts a slot of the layer whose turn is furthest away.
///
/// Rule: order by the distance (l - l_now - 1) mod L of the key's layer, furthest first: the layer being
///       executed has L - 1, the next layer 0. Then recency position.
/// Source: FLD in SpecMD appendix B, from HOBBIT.
/// Deviations: none.
/// Exact: yes (never changes what is computed).
/// Cost: O(1) per hit and fill; a victim costs O(1) plus the ineligible slots passed over.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "hotset/eviction/order/layer_lists.hpp"
#include "hotset/eviction/order/recency_list.hpp"
#include "hotset/policy/eviction_policy.hpp"
#include "hotset/policy/policy_config.hpp"

namespace hotset {

class furthest_layer {
 public:
  using config = no_options;
  static constexpr std::string_view name = "furthest_layer";
  static constexpr eviction_traits traits{.moves_by_itself = true};

  explicit furthest_layer(const pool_layout& layout, const config& = {})
      : lists_(layout),
        order_(layout.slots(), lists_.count()),
        words_((layout.shape().layer_count() + 63) / 64),
        used_(layout.pools() * words_, 0) {}

  void on_visit(const visit_event& e) noexcept {
    for (const auto& f : e.fills)
      if (f.victim != no_key) on_evict(f.slot, f.victim);
    if (e.used.empty()) return;
    const auto list = lists_.in_pool(index_of(e.context.layer), e.context.pool);
    order_.move_to_back(list, e.used);
    word(list, e.context.layer) |= bit(e.context.layer);
  }
  void on_prefetch(const prefetch_event& e) noexcept {
    const auto list = lists_.of(e.key.layer, e.slot);
    order_.push_back(list, e.slot);
    word(list, e.key.layer) |= bit(e.key.layer);
  }
  void on_evict(slot_id slot, expert_key key) noexcept {
    order_.erase(slot);
    const auto list = lists_.of(key.layer, slot);
    if (order_.front(list) == no_slot) word(list, key.layer) &= ~bit(key.layer);
  }
  void on_move(slot_id from, slot_id to) noexcept { order_.take_place(from, to); }

  [[nodiscard]] std::size_t select_victims(const visit_context& context, const slot_mask& eligible,
                                           std::span<slot_id> out) noexcept {
    // Descending distance is descending layer from the running one, then from the last one down.
    const auto* const used = used_.data() + index_of(context.pool) * words_;
    const auto running = context.layer == before_layers ? words_ * 64 - 1 : index_of(context.layer);
    const auto here = running / 64;
    const auto upto = ~std::uint64_t{0} >> (63 - running % 64);
    std::size_t count = 0;
    const auto take = [&](std::size_t w, std::uint64_t layers) {
      while (layers != 0 && count < out.size()) {
        const auto b = static_cast<std::size_t>(63 - std::countl_zero(layers));
        layers &= ~(std::uint64_t{1} << b);
        count +=
            order_.select(lists_.in_pool(w * 64 + b, context.pool), eligible, out.subspan(count));
      }
    };
    take(here, used[here] & upto);
    for (auto w = here; w-- > 0;) take(w, used[w]);
    for (auto w = words_; --w > here;) take(w, used[w]);
    take(here, used[here] & ~upto);
    return count;
  }

 private:
  static std::uint64_t bit(layer_id layer) noexcept {
    return std::uint64_t{1} << (index_of(layer) % 64);
  }
  std::uint64_t& word(std::size_t list, layer_id layer) noexcept {
    return used_[index_of(lists_.pool(list)) * words_ + index_of(layer) / 64];
  }

  layer_lists lists_;
  recency_list order_;  // one list per layer and precision
  std::size_t words_;
  std::vector<std::uint64_t> used_;  // [pool][layer] bits: the layer holds slots
};

static_assert(is_eviction_policy<furthest_layer>());

}  // namespace hotset
