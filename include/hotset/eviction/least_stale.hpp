// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Evicts what this step has not touched and has already passed before anything that it still comes to.
///
/// Rule: a key is current if used in this step or prefetched for it, later if requested for a later step,
///       else stale; left if its layer is the running one or before it, else right. In this order: stale
///       left, current left, stale right, current right, later left, later right; left by ascending layer,
///       right the farthest first, inside a layer by arrival. Asking for a resident key makes it current.
///       `stale`: stale right before current left. `layer`: as if all were left. `last_access`: by (epoch,
///       layer, recency), the epoch being the step last used or requested for.
/// Source: SpecMD 4.2, 5.2, A.3, Figure 3.
/// Deviations: the paper can be read in three ways. Section 4.2 and the caption of Figure 3 say `stale`:
///       everything stale goes before anything current. 4.2's "FIFO ordering based on layer position" alone
///       says `layer`. Section 5.2, A.3 and Figure 9 say that executed layers go first: `left`. Only `left`
///       gives the paper's first-token times and few collisions on every shape (docs/reproduction.md).
///       The paper's left is "in layer-expert order"; here it goes by layer, so the running layer's experts
///       that are still to come count as left. Lists replace the paper's two heaps, and epochs replace the
///       pass over the slots. A key requested for a later step stays later when it is used before that step.
/// Exact: yes (never changes what is computed).
/// Cost: one store per hit, O(1) per fill; a victim costs O(1) plus the current and ineligible slots of
///       its layer that are passed over, and O(L / 64). `last_access`: O(S) per choice, S the pool's slots.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/core/ids/per_id.hpp"
#include "hotset/eviction/order/layer_lists.hpp"
#include "hotset/eviction/order/recency_list.hpp"
#include "hotset/eviction/order/scanned_slots.hpp"
#include "hotset/policy/eviction_policy.hpp"

namespace hotset {

/// How least_stale puts the layers in order.
enum class stale_order : std::uint8_t { left, layer, last_access, stale };

class least_stale {
 public:
  struct config {
    stale_order order = stale_order::left;
    /// Parameters by name, as in `least_stale:order=layer`.
    template <class From>
    static config read(From& from) {
      return {static_cast<stale_order>(
          from.choice("order", {"left", "layer", "last_access", "stale"}, 0))};
    }
    [[nodiscard]] validation validate() const {
      if (order > stale_order::stale)
        return error{"least_stale order = " + std::to_string(static_cast<int>(order)) +
                     ", accepted: 0 (left), 1 (layer), 2 (last_access), 3 (stale)"};
      return std::nullopt;
    }
  };
  static constexpr std::string_view name = "least_stale";
  static constexpr eviction_traits traits{.hears_requests = true, .moves_by_itself = true};

  explicit least_stale(const pool_layout& layout) : least_stale(layout, config{}) {}
  least_stale(const pool_layout& layout, const config& options)
      : order_(options.order),
        layers_(static_cast<std::uint64_t>(layout.shape().layers)),
        words_((layout.shape().layer_count() + 63) / 64),
        epoch_(layout.slots(), 0) {
    if (by_access()) {
      accesses_ = scanned_slots(layout);
      return;
    }
    lists_ = layer_lists(layout);
    arrivals_ = recency_list(layout.slots(), lists_.count());
    used_.assign(layout.pools() * words_, 0);
    stale_.assign(layout.pools() * words_, 0);
    searched_.assign(layout.pools(), 0);
  }

  void on_visit(const visit_event& e) noexcept {
    for (const auto& f : e.fills) epoch_[f.slot] = e.context.step;
    for (const auto slot : e.used) touch(slot, e.context.step);
    if (by_access()) {
      accesses_.bring(e.context.pool, e.fills);
      return accesses_.use(e.used);
    }
    if (e.fills.empty()) return;
    const auto list = lists_.of(e.context.layer, e.fills.front().slot);
    arrivals_.move_to_back(list, e.fills, [](const fill& f) { return f.slot; });
    for (const auto& f : e.fills)
      if (f.victim != no_key) departed(f.slot, f.victim.layer);
    arrived(list, e.context.layer, e.context.step);
  }
  void on_prefetch(const prefetch_event& e) noexcept {
    epoch_[e.slot] = e.step;
    if (by_access()) return accesses_.fill(e.pool, e.slot, e.key);
    const auto list = lists_.of(e.key.layer, e.slot);
    arrivals_.push_back(list, e.slot);
    arrived(list, e.key.layer, e.step);
  }
  void on_request(const prefetch_event& e) noexcept { touch(e.slot, e.step); }
  void on_evict(slot_id slot, expert_key key) noexcept {
    if (by_access()) {
      accesses_.vacate(slot);
      return;
    }
    arrivals_.erase(slot);
    departed(slot, key.layer);
  }
  void on_move(slot_id from, slot_id to) noexcept {
    epoch_[to] = epoch_[from];
    by_access() ? accesses_.move(from, to) : arrivals_.take_place(from, to);
  }

  [[nodiscard]] std::size_t select_victims(const visit_context& context, const slot_mask& eligible,
                                           std::span<slot_id> out) noexcept {
    if (by_access())
      return accesses_.select(context.pool, eligible, out, [this](slot_id slot, expert_key key) {
        return epoch_[slot] * layers_ + std::uint64_t{index_of(key.layer)};
      });
    turn_stale(context);
    const auto all = static_cast<std::size_t>(layers_);
    const auto split = order_ == stale_order::layer ? all : layers_until(context.layer);
    const span_of_layers left{0, split};
    const span_of_layers right{split, all};
    search found{context, eligible, out, 0};
    const auto stale = [&](std::size_t layer) { take_stale(found, layer); };
    const auto current = [&](std::size_t layer) { (void)take(found, layer, is_current); };
    const auto later = [&](std::size_t layer) { (void)take(found, layer, is_later); };
    const bool all_stale_first = order_ == stale_order::stale;
    each_layer(found, direction::near, stale_, left, stale);
    if (!all_stale_first) each_layer(found, direction::near, used_, left, current);
    each_layer(found, direction::far, stale_, right, stale);
    if (all_stale_first) each_layer(found, direction::near, used_, left, current);
    each_layer(found, direction::far, used_, right, current);
    each_layer(found, direction::near, used_, left, later);
    each_layer(found, direction::far, used_, right, later);
    return found.count;
  }

 private:
  struct search {
    const visit_context& context;
    const slot_mask& eligible;
    std::span<slot_id> out;
    std::size_t count;
    [[nodiscard]] bool done() const noexcept { return count == out.size(); }
  };
  /// Layers [first, end).
  struct span_of_layers {
    std::size_t first, end;
  };
  enum class direction : std::uint8_t { near, far };
  using bits = std::vector<std::uint64_t>;
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();
  static constexpr auto is_stale = [](step_id epoch, step_id now) { return epoch < now; };
  static constexpr auto is_current = [](step_id epoch, step_id now) { return epoch == now; };
  static constexpr auto is_later = [](step_id epoch, step_id now) { return epoch > now; };
  static std::uint64_t bit(layer_id layer) noexcept {
    return std::uint64_t{1} << (index_of(layer) % 64);
  }
  [[nodiscard]] bool by_access() const noexcept { return order_ == stale_order::last_access; }
  /// A list has got slots for a step.
  void arrived(std::size_t list, layer_id layer, step_id step) noexcept {
    const auto pool = index_of(lists_.pool(list));
    const auto word = pool * words_ + index_of(layer) / 64;
    used_[word] |= bit(layer);
    // A fill for a step gone by is stale at once.
    if (step < searched_[pool]) stale_[word] |= bit(layer);
  }
  /// A slot has left the list of a layer.
  void departed(slot_id slot, layer_id layer) noexcept {
    const auto list = lists_.of(layer, slot);
    if (arrivals_.front(list) != no_slot) return;
    const auto word = index_of(lists_.pool(list)) * words_ + index_of(layer) / 64;
    used_[word] &= ~bit(layer);
    stale_[word] &= ~bit(layer);
  }
  void touch(slot_id slot, step_id step) noexcept {
    auto& epoch = epoch_[slot];
    epoch = std::max(epoch, step);
  }
  /// In a new step what was current is stale: every layer with slots may hold such keys again.
  void turn_stale(const visit_context& context) noexcept {
    const auto pool = index_of(context.pool);
    if (searched_[pool] == context.step) return;
    searched_[pool] = context.step;
    std::copy_n(used_.data() + pool * words_, words_, stale_.data() + pool * words_);
  }
  /// The first layer of the span whose bit is set, from the near end or from the far one; or none.
  [[nodiscard]] std::size_t first_of(const bits& set, pool_id pool, span_of_layers layers,
                                     direction from) const noexcept {
    const auto* const words = set.data() + index_of(pool) * words_;
    const auto begin = layers.first / 64;
    const auto end = (layers.end + 63) / 64;
    for (auto n = begin; n < end; ++n) {
      const auto w = from == direction::near ? n : end - 1 - (n - begin);
      auto rest = words[w];
      if (w == begin) rest &= ~std::uint64_t{0} << layers.first % 64;
      if (w == layers.end / 64) rest &= (std::uint64_t{1} << layers.end % 64) - 1;
      if (rest == 0) continue;
      return w * 64 + static_cast<std::size_t>(from == direction::near
                                                   ? std::countr_zero(rest)
                                                   : 63 - std::countl_zero(rest));
    }
    return none;
  }
  /// Calls use(layer) for each layer of the span whose bit is set, until all victims are found.
  template <class Use>
  void each_layer(const search& found, direction from, const bits& set, span_of_layers layers,
                  Use use) const noexcept {
    while (!found.done()) {
      const auto layer = first_of(set, found.context.pool, layers, from);
      if (layer == none) return;
      use(layer);
      if (from == direction::near)
        layers.first = layer + 1;
      else
        layers.end = layer;
    }
  }
  /// Returns whether the layer has a key that is wanted, eligible or not. Pre: a victim is missing.
  template <class Wanted>
  bool take(search& found, std::size_t layer, Wanted wanted) const noexcept {
    bool any = false;
    for (slot_id s = arrivals_.front(lists_.in_pool(layer, found.context.pool));
         s != no_slot && !found.done(); s = arrivals_.after(s)) {
      if (!wanted(epoch_[s], found.context.step)) continue;
      any = true;
      if (found.eligible.test(s)) found.out[found.count++] = s;
    }
    return any;
  }
  /// A layer without a stale key is not looked at again in this step.
  void take_stale(search& found, std::size_t layer) noexcept {
    if (take(found, layer, is_stale)) return;
    stale_[index_of(found.context.pool) * words_ + layer / 64] &=
        ~(std::uint64_t{1} << (layer % 64));
  }

  stale_order order_;
  std::uint64_t layers_;
  std::size_t words_;
  per_slot<step_id> epoch_;  // [slot] step last used or requested for
  // order: left, layer, stale
  layer_lists lists_;
  recency_list arrivals_;          // one list per layer and precision
  bits used_;                      // [pool][layer]: the layer holds slots
  bits stale_;                     // [pool][layer]: the layer may hold stale keys in step searched_
  std::vector<step_id> searched_;  // [pool]
  // order: last_access
  scanned_slots accesses_;
};

static_assert(is_eviction_policy<least_stale>());

}  // namespace hotset
