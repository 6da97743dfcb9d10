// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Evicts what this step has not touched before anything that it has, nearest layer first.
///
/// Rule: a key is current if used in this step or prefetched for it, else stale. Three queues, in this
///       order: stale, current, requested for a later step; inside a queue ascending layer, then order of
///       arrival. Asking for a resident key makes it current. A new step turns current keys stale.
///       `last_access`: by (epoch, layer, recency), the epoch being the step last used or requested for.
/// Source: SpecMD 4.2.
/// Deviations: lists instead of the paper's two heaps; epochs instead of a pass over the slots. A key
///       requested for a later step stays in the third queue when it is used before that step.
/// Exact: yes (never changes what is computed).
/// Cost: one store per hit, O(1) per fill; a victim costs O(1) plus the current and ineligible slots of
///       its layer that are passed over, and O(L / 64). `last_access`: O(log S) per victim.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/concepts/eviction_policy.hpp"
#include "hotset/residency/indexed_heap.hpp"
#include "hotset/residency/layer_lists.hpp"
#include "hotset/residency/recency_list.hpp"

namespace hotset::inline v0 {

/// What least_stale looks at inside a queue.
enum class stale_order : std::uint8_t { layer, last_access };

class least_stale {
 public:
  struct config {
    stale_order order = stale_order::layer;
    [[nodiscard]] validation validate() const {
      if (order != stale_order::layer && order != stale_order::last_access)
        return error{"least_stale order = " + std::to_string(static_cast<int>(order)) +
                     ", accepted: 0 (layer), 1 (last_access)"};
      return std::nullopt;
    }
  };
  static constexpr std::string_view name = "least_stale";

  explicit least_stale(const pool_layout& layout) : least_stale(layout, config{}) {}
  least_stale(const pool_layout& layout, const config& options)
      : by_layer_(options.order == stale_order::layer),
        layers_(static_cast<std::uint64_t>(layout.shape().layers)),
        words_((static_cast<std::size_t>(layout.shape().layers) + 63) / 64),
        epoch_(layout.slots(), 0) {
    if (by_layer_) {
      lists_ = layer_lists(layout);
      arrivals_ = recency_list(layout.slots(), lists_.count());
      used_.assign(layout.pools() * words_, 0);
      cursor_.assign(layout.pools(), {});
    } else {
      accesses_ = indexed_heap(layout);
    }
  }

  void on_step(step_id, layer_id) noexcept {}
  void on_hit(const access& a) noexcept {
    touch(a);
    if (!by_layer_) accesses_.raise(a.slot, {stamp(a), ++clock_});
  }
  void on_fill(const access& a) noexcept {
    epoch_[slot_index(a.slot)] = a.step;
    if (!by_layer_) {
      accesses_.assign(a.pool, a.slot, {stamp(a), ++clock_});
      return;
    }
    const auto list = lists_.of(a.key.layer, a.slot);
    arrivals_.push_back(list, a.slot);
    word(list, a.key.layer) |= bit(a.key.layer);
    // A fill for a step gone by is stale at once: the search must not start behind it.
    auto& cursor = cursor_[static_cast<std::size_t>(lists_.pool(list))];
    if (a.step < cursor.step) cursor.layer = std::min(cursor.layer, at(a.key.layer));
  }
  void on_bypass(const access&) noexcept {}
  /// A prefetcher asked for a resident key, for step `a.step`.
  void on_request(const access& a) noexcept {
    touch(a);
    if (!by_layer_) accesses_.raise(a.slot, {stamp(a), accesses_.rank(a.slot).position});
  }
  void on_evict(slot_id slot, expert_key key) noexcept {
    if (!by_layer_) {
      accesses_.vacate(slot);
      return;
    }
    arrivals_.erase(slot);
    const auto list = lists_.of(key.layer, slot);
    if (arrivals_.front(list) == no_slot) word(list, key.layer) &= ~bit(key.layer);
  }

  [[nodiscard]] std::size_t select_victims(const visit_context& context, const slot_mask& eligible,
                                           std::span<slot_id> out) noexcept {
    if (!by_layer_) return accesses_.select(context.pool, eligible, out);
    auto& cursor = cursor_[static_cast<std::size_t>(context.pool)];
    if (cursor.step != context.step) cursor = {context.step, 0};
    const step_id now = context.step;

    // Layers in front of the cursor hold no stale key in this step.
    std::size_t count = 0;
    bool behind_all = true;  // no stale key so far
    for (auto l = next_layer(context.pool, cursor.layer); l != none && count < out.size();
         l = next_layer(context.pool, l + 1)) {
      for (slot_id s = arrivals_.front(lists_.in_pool(l, context.pool));
           s != no_slot && count < out.size(); s = arrivals_.after(s)) {
        if (epoch_[slot_index(s)] >= now) continue;
        if (behind_all) {
          behind_all = false;
          cursor.layer = l;
        }
        if (eligible.test(s)) out[count++] = s;
      }
    }
    if (count == out.size()) return count;
    if (behind_all) cursor.layer = static_cast<std::size_t>(layers_);
    count = take(context.pool, eligible, out, count, [now](step_id e) { return e == now; });
    if (count == out.size()) return count;
    return take(context.pool, eligible, out, count, [now](step_id e) { return e > now; });
  }

 private:
  struct search {
    step_id step = 0;
    std::size_t layer = 0;
  };
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

  static std::size_t at(layer_id layer) noexcept { return static_cast<std::size_t>(layer); }
  static std::size_t slot_index(slot_id slot) noexcept { return static_cast<std::size_t>(slot); }
  static std::uint64_t bit(layer_id layer) noexcept { return std::uint64_t{1} << (at(layer) % 64); }
  std::uint64_t& word(std::size_t list, layer_id layer) noexcept {
    return used_[static_cast<std::size_t>(lists_.pool(list)) * words_ + at(layer) / 64];
  }
  void touch(const access& a) noexcept {
    auto& epoch = epoch_[slot_index(a.slot)];
    epoch = std::max(epoch, a.step);
  }
  [[nodiscard]] std::uint64_t stamp(const access& a) const noexcept {
    return epoch_[slot_index(a.slot)] * layers_ + static_cast<std::uint64_t>(a.key.layer);
  }
  /// First layer >= from with slots of the pool.
  [[nodiscard]] std::size_t next_layer(pool_id pool, std::size_t from) const noexcept {
    const auto* const used = used_.data() + static_cast<std::size_t>(pool) * words_;
    auto w = from / 64;
    if (w >= words_) return none;
    auto rest = used[w] & (~std::uint64_t{0} << (from % 64));
    while (rest == 0) {
      if (++w == words_) return none;
      rest = used[w];
    }
    return w * 64 + static_cast<std::size_t>(std::countr_zero(rest));
  }
  template <class Wanted>
  std::size_t take(pool_id pool, const slot_mask& eligible, std::span<slot_id> out,
                   std::size_t count, Wanted wanted) const noexcept {
    for (auto l = next_layer(pool, 0); l != none; l = next_layer(pool, l + 1))
      for (slot_id s = arrivals_.front(lists_.in_pool(l, pool)); s != no_slot;
           s = arrivals_.after(s))
        if (wanted(epoch_[slot_index(s)]) && eligible.test(s)) {
          out[count++] = s;
          if (count == out.size()) return count;
        }
    return count;
  }

  bool by_layer_;
  std::uint64_t layers_;
  std::size_t words_;
  std::uint64_t clock_ = 0;
  std::vector<step_id> epoch_;  // [slot] step last used or requested for
  // order: layer
  layer_lists lists_;
  recency_list arrivals_;            // one list per layer and precision
  std::vector<std::uint64_t> used_;  // [pool][layer] bits: the layer holds slots
  std::vector<search> cursor_;       // [pool]
  // order: last_access
  indexed_heap accesses_;
};

static_assert(eviction_policy<least_stale>);

}  // namespace hotset::inline v0
