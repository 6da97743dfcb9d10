// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Evicts experts that this step has passed and not touched before experts that it still comes to.
///
/// Rule: a key is current if it was used in this step or prefetched for it, later if requested for a later step, else
///   stale. It is left if its layer is the running one or before it, else right. Order: stale left, current left,
///   stale right, current right, later left, later right. Left goes by ascending layer, right by the farthest layer
///   first, inside a layer by arrival. A request for a resident key makes it current. `stale`: stale right before
///   current left. `layer`: all keys count as left. `last_access`: by (epoch, layer, recency), where the epoch is the
///   step of the last use or request.
/// Source: SpecMD 4.2, 5.2, A.3, Figure 3.
/// Deviations: the paper can be read in three ways. Section 4.2 and the caption of Figure 3 give `stale`: everything
///   stale goes before anything current. 4.2's "FIFO ordering based on layer position" alone gives `layer`. Section
///   5.2, A.3 and Figure 9 give `left`: executed layers go first. Only `left` gives the paper's first-token times and
///   few collisions on every shape (docs/papers/specmd.md). The paper's left is "in layer-expert order". Here it goes
///   by layer, so the running layer's experts that are still to come count as left. Lists replace the paper's two
///   heaps, and epochs replace the pass over the slots. A key requested for a later step stays later if it is used
///   before that step.
/// Exact: yes (never changes what is computed).
/// Cost: one store per hit, O(1) per fill. A victim costs O(L / 64), plus the skipped current and ineligible slots of
///   its layer. `last_access`: O(S log V) per choice of V victims, S the slots of the pool.

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "hotset/core/ids/per_id.hpp"
#include "hotset/eviction/order/layer_lists.hpp"
#include "hotset/eviction/order/recency_list.hpp"
#include "hotset/eviction/order/sparse_bits.hpp"
#include "hotset/policy/eviction_policy.hpp"

namespace hotset {

/// Order in which least_stale evicts.
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
      return detail::one_of("least_stale order", order, {"left", "layer", "last_access", "stale"});
    }
  };
  static constexpr std::string_view name = "least_stale";
  static constexpr eviction_traits traits{.wants_requests = true, .moves_by_itself = true};

  least_stale(const pool_layout& layout, const config& options)
      : order_(options.order),
        layers_(layout.shape().layer_count()),
        epoch_(layout.slots(), 0),
        lists_(layout),
        order_in_(layout.slots(), lists_.count()),
        used_(layout.pools() * layers_),
        stale_(used_),
        searched_(layout.pools(), 0),
        accesses_(by_access() ? layout.slots() : 0) {}

  void on_visit(const visit_event& e) noexcept {
    for (const auto& f : e.fills) epoch_[f.slot] = e.context.step;
    for (const auto slot : e.used) touch(slot, e.context.step);
    if (e.fills.empty() && !by_access()) return;
    const auto list = lists_.in_pool(e.context.layer, e.context.pool);
    if (by_access())
      order_in_.move_to_back(list, e.used);
    else
      order_in_.move_to_back(list, e.fills, [](const fill& f) { return f.slot; });
    for (const auto& f : e.fills)
      if (f.victim != no_key) removed(f.slot, f.victim.layer);
    if (!e.fills.empty()) arrived(list, e.context.layer, e.context.step);
  }
  void on_prefetch(const prefetch_event& e) noexcept {
    epoch_[e.slot] = e.step;
    const auto list = lists_.of(e.key.layer, e.slot);
    order_in_.push_back(list, e.slot);
    arrived(list, e.key.layer, e.step);
  }
  void on_request(const prefetch_event& e) noexcept { touch(e.slot, e.step); }
  void on_evict(slot_id slot, expert_key key) noexcept {
    order_in_.erase(slot);
    removed(slot, key.layer);
  }
  void on_move(slot_id from, slot_id to) noexcept {
    epoch_[to] = epoch_[from];
    order_in_.take_place(from, to);
  }

  [[nodiscard]] std::size_t select_victims(const visit_context& context, const slot_mask& eligible,
                                           std::span<slot_id> out) noexcept {
    search found{context, eligible, out, 0};
    if (by_access()) return select_by_access(found);
    turn_stale(context);
    const auto split = order_ == stale_order::layer ? layers_ : layers_until(context.layer);
    const layer_range left{0, split};
    const layer_range right{split, layers_};
    const auto stale = [&](layer_id layer) { take_stale(found, layer); };
    const auto current = [&](layer_id layer) { (void)take(found, layer, is_current); };
    const auto later = [&](layer_id layer) { (void)take(found, layer, is_later); };
    const bool all_stale_first = order_ == stale_order::stale;
    each_layer(found, up, stale_, left, stale);
    if (!all_stale_first) each_layer(found, up, used_, left, current);
    each_layer(found, down, stale_, right, stale);
    if (all_stale_first) each_layer(found, up, used_, left, current);
    each_layer(found, down, used_, right, current);
    each_layer(found, up, used_, left, later);
    each_layer(found, down, used_, right, later);
    return found.count;
  }

 private:
  struct search {
    const visit_context& context;
    const slot_mask& eligible;
    std::span<slot_id> out;
    std::size_t count;
    [[nodiscard]] bool is_done() const noexcept { return count == out.size(); }
  };
  struct access {
    step_id epoch = 0;
    std::ptrdiff_t place = 0;  ///< position by layer, then recency
    slot_id slot = no_slot;
    // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 takes the defaulted comparison for a 0
    auto operator<=>(const access&) const = default;
  };
  /// Layers [first, end).
  struct layer_range {
    std::size_t first = 0;
    std::size_t end = 0;
  };
  enum class direction : std::uint8_t { up, down };
  static constexpr auto up = direction::up;
  static constexpr auto down = direction::down;
  static constexpr auto is_stale = [](step_id epoch, step_id now) { return epoch < now; };
  static constexpr auto is_current = [](step_id epoch, step_id now) { return epoch == now; };
  static constexpr auto is_later = [](step_id epoch, step_id now) { return epoch > now; };
  [[nodiscard]] std::size_t place(pool_id pool, layer_id layer) const noexcept {
    return index_of(pool) * layers_ + index_of(layer);
  }
  [[nodiscard]] bool by_access() const noexcept { return order_ == stale_order::last_access; }
  /// A list received slots for a step.
  void arrived(std::size_t list, layer_id layer, step_id step) noexcept {
    const auto pool = lists_.pool(list);
    used_.set(place(pool, layer));
    if (step < searched_[pool])
      stale_.set(place(pool, layer));  // a fill for a past step is stale at once
  }
  /// A slot was removed from a layer's list.
  void removed(slot_id slot, layer_id layer) noexcept {
    const auto list = lists_.of(layer, slot);
    if (order_in_.front(list) != no_slot) return;
    used_.reset(place(lists_.pool(list), layer));
    stale_.reset(place(lists_.pool(list), layer));
  }
  void touch(slot_id slot, step_id step) noexcept {
    auto& epoch = epoch_[slot];
    epoch = std::max(epoch, step);
  }
  /// In a new step, current keys become stale: every layer with slots may hold stale keys again.
  void turn_stale(const visit_context& context) noexcept {
    if (searched_[context.pool] == context.step) return;
    searched_[context.pool] = context.step;
    const auto first = place(context.pool, layer_id{});
    used_.each_up(first, first + layers_, [this](std::size_t n) {
      stale_.set(n);
      return true;
    });
  }
  /// Calls use(layer) for each layer of the range in the set, until all victims are found.
  template <class Use>
  void each_layer(const search& found, direction to, sparse_bits& set, layer_range layers,
                  Use use) const noexcept {
    if (found.is_done()) return;
    const auto first = place(found.context.pool, layer_id{});
    const auto look = [&](std::size_t n) {
      use(static_cast<layer_id>(n - first));
      return !found.is_done();
    };
    if (to == direction::up)
      set.each_up(first + layers.first, first + layers.end, look);
    else
      set.each_down(first + layers.first, first + layers.end, look);
  }
  /// Calls use(slot) for each slot of the layer, in order, until all victims are found.
  template <class Use>
  void each_slot(const search& found, layer_id layer, Use use) const noexcept {
    const auto list = lists_.in_pool(layer, found.context.pool);
    for (auto s = order_in_.front(list); s != no_slot && !found.is_done(); s = order_in_.after(s))
      use(s);
  }
  /// Returns whether the layer has a wanted key, eligible or not. Pre: a victim is missing.
  template <class Wanted>
  bool take(search& found, layer_id layer, Wanted wanted) const noexcept {
    bool any = false;
    each_slot(found, layer, [&](slot_id s) {
      if (!wanted(epoch_[s], found.context.step)) return;
      any = true;
      if (found.eligible.test(s)) found.out[found.count++] = s;
    });
    return any;
  }
  /// A layer without a stale key is skipped for the rest of this step.
  void take_stale(search& found, layer_id layer) noexcept {
    if (!take(found, layer, is_stale)) stale_.reset(place(found.context.pool, layer));
  }
  /// Each list is in order of recency. Walked by ascending layers, they leave only epochs to compare.
  std::size_t select_by_access(search& found) noexcept {
    auto end = accesses_.begin();
    each_layer(found, up, used_, {0, layers_}, [&](layer_id layer) {
      each_slot(found, layer, [&](slot_id s) {
        if (found.eligible.test(s)) *end++ = {epoch_[s], end - accesses_.begin(), s};
      });
    });
    found.count = std::min(found.out.size(), static_cast<std::size_t>(end - accesses_.begin()));
    std::partial_sort(accesses_.begin(),
                      accesses_.begin() + static_cast<std::ptrdiff_t>(found.count), end);
    for (std::size_t n = 0; n < found.count; ++n) found.out[n] = accesses_[n].slot;
    return found.count;
  }

  stale_order order_;
  std::size_t layers_;
  per_slot<step_id> epoch_;  // [slot] step of the last use or request
  layer_lists lists_;
  recency_list order_in_;  // one list per layer and precision, by arrival; `last_access`: by use
  sparse_bits used_;       // [pool, layer] layers that hold slots of the pool
  sparse_bits stale_;      // layers of used_ that may hold stale keys in step searched_
  per_pool<step_id> searched_;    // [pool]
  std::vector<access> accesses_;  // scratch of `last_access`
};

static_assert(is_eviction_policy<least_stale>());

}  // namespace hotset
