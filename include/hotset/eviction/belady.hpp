// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Evicts the slot whose key is used again furthest in the future: the offline optimum for comparisons.
///
/// Rule: order by the key's next visit after the running one, furthest first; keys never used again come before all
///   others. Then recency position. Admission is forced: every fetched miss takes a slot.
/// Source: Belady 1966; event-atomic form as in WiSP.
/// Deviations: none. With token groups, a group is an event: the future is built from groups.
/// Exact: yes (never changes what is computed). Offline: needs the trace beforehand.
/// Cost: O(1) per hit and fill. A victim costs O(1), plus the skipped ineligible slots, the slots with the same next
///   visit, and 1 / 4096 of the pool's uses between them. Memory: a use_order, and one bit per use.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/platform/compiler.hpp"
#include "hotset/eviction/order/recency_list.hpp"
#include "hotset/eviction/order/sparse_bits.hpp"
#include "hotset/policy/eviction_policy.hpp"
#include "hotset/trace/future_uses.hpp"
#include "hotset/trace/policy_knowledge.hpp"

namespace hotset {

class belady {
 public:
  struct config {
    std::shared_ptr<const future_uses> future{};
    /// Numbering of this future's uses that policies share. None: this policy numbers them itself.
    shared_use_orders numbered{};
    template <class From>
    static config read(From&, const policy_knowledge& known) {
      return {known.future, known.numbered};
    }
    [[nodiscard]] validation validate() const { return check_future(name, future.get()); }
    /// Also refuses a future with another shape.
    [[nodiscard]] validation validate(const geometry& shape) const {
      return check_future(name, future.get(), &shape);
    }
  };
  static constexpr std::string_view name = "belady";
  static constexpr eviction_traits traits{.needs_future = true, .most_precisions = 1};

  explicit belady(const pool_layout& layout, const config& options)
      : experts_(layout.shape().expert_count()),
        numbered_(number(layout, options)),
        ordinals_(numbered_->ordinals().data()),
        following_(numbered_->following().data()),
        keys_(numbered_->keys().data()),
        widest_(numbered_->widest()),
        upcoming_(numbered_->first().begin(), numbered_->first().end()),
        slot_of_(layout.shape().keys(), no_slot),
        residents_(layout.slots()),
        never_(layout.slots(), layout.pools()),
        tied_(layout.slots()),
        waiting_(numbered_->size()),
        pools_(layout.pools()) {
    upcoming_.resize(layout.shape().keys(), none);
    if (numbered_->size() != 0)
      for (const auto p : pools_.ids()) pools_[p].furthest = pools_[p].end = numbered_->end(p);
  }

  void on_visit(const visit_event& e) noexcept {
    const auto pool = e.context.pool;
    const auto ordinal = e.context.ordinal;
    for (const auto& f : e.fills) {
      if (f.victim != no_key) on_evict(f.slot, f.victim);
      fill_slot(pool, f.slot, f.key, ordinal);
    }
    for (const auto slot : e.used) use(pool, slot, ordinal);
  }
  void on_prefetch(const prefetch_event& e) noexcept {
    fill_slot(e.pool, e.slot, e.key, e.ordinal);
  }
  void on_evict(slot_id slot, expert_key key) noexcept {
    const auto use = residents_[slot].use;
    upcoming_[index(key)] = use;
    if (use == none)
      never_.erase(slot);
    else
      waiting_.reset(use);
  }
  void on_move(slot_id from, slot_id to) noexcept {
    const auto& r = residents_[to] = residents_[from];
    if (r.use == none)
      never_.take_place(from, to);
    else
      slot_of_[keys_[r.use]] = to;
  }

  [[nodiscard]] std::size_t select_victims(const visit_context& context, const slot_mask& eligible,
                                           std::span<slot_id> out) noexcept {
    std::size_t count = never_.select(index_of(context.pool), eligible, out);
    if (count == out.size()) return count;

    auto& pool = pools_[context.pool];
    pool.furthest = waiting_.next(pool.furthest, pool.end);
    for (auto use = pool.furthest; use != pool.end && count < out.size();) {
      const auto following = waiting_.next(use + 1, pool.end);
      if (!same_visit(use, following, pool.end)) {
        if (const auto slot = slot_of_[keys_[use]]; eligible.test(slot)) out[count++] = slot;
        use = following;
        continue;
      }
      // Several slots wait for the same visit: order them by recency.
      const auto first = use;
      std::size_t ties = 0;
      for (; same_visit(first, use, pool.end); use = waiting_.next(use + 1, pool.end)) {
        const auto slot = slot_of_[keys_[use]];
        tied_[ties++] = {residents_[slot].position, slot};
      }
      std::sort(tied_.begin(), tied_.begin() + static_cast<std::ptrdiff_t>(ties),
                [](const tie& a, const tie& b) { return a.position < b.position; });
      for (std::size_t n = 0; n < ties && count < out.size(); ++n)
        if (eligible.test(tied_[n].slot)) out[count++] = tied_[n].slot;
    }
    return count;
  }

 private:
  static constexpr std::uint32_t none = use_order::none;

  struct resident {
    std::uint64_t position = 0;
    std::uint32_t use = none;  // next use
  };
  struct tie {
    std::uint64_t position = 0;
    slot_id slot = no_slot;
  };
  /// Uses of a pool; the furthest has the lowest number.
  struct range {
    std::size_t furthest = 0;  // no resident waits for an earlier number
    std::size_t end = 0;
  };
  /// validate() refuses a future with another shape. Without a future no key is used again.
  static std::shared_ptr<const use_order> number(const pool_layout& layout, const config& options) {
    if (!options.future || options.future->keys() != layout.shape().keys())
      return std::make_shared<const use_order>();
    if (options.numbered) return options.numbered(layout);
    return std::make_shared<const use_order>(layout, *options.future);
  }
  [[nodiscard]] std::size_t index(expert_key key) const noexcept {
    return index_of(key.layer) * experts_ + index_of(key.expert);
  }

  /// Returns true if a use and a later number are of one visit. The distance is checked first: most are too far
  /// apart.
  [[nodiscard]] bool same_visit(std::size_t use, std::size_t other,
                                std::size_t end) const noexcept {
    return other - use < widest_ && other != end && ordinals_[other] == ordinals_[use];
  }
  /// Returns the first use of a key after a visit. The search starts at `use`, which must not be later than that.
  [[nodiscard]] std::uint32_t after(std::uint32_t use, std::uint64_t ordinal) const noexcept {
    // Common case: the visit uses the key, so the next use needs no comparison.
    if (use != none && ordinals_[use] == ordinal) return following_[use];
    while (use != none && ordinals_[use] <= ordinal) use = following_[use];
    return use;
  }
  void use(pool_id pool, slot_id slot, std::uint64_t ordinal) noexcept {
    auto& r = residents_[slot];
    r.position = ++clock_;
    const auto old = r.use;
    if (old == none) return never_.move_to_back(index_of(pool), slot);
    r.use = after(old, ordinal);
    if (r.use == old) return;
    waiting_.reset(old);
    wait(pool, slot, r.use);
  }
  void fill_slot(pool_id pool, slot_id slot, expert_key filled, std::uint64_t ordinal) noexcept {
    const auto key = index(filled);
    slot_of_[key] = slot;
    auto& r = residents_[slot];
    r.position = ++clock_;
    r.use = after(upcoming_[key], ordinal);
    wait(pool, slot, r.use);
  }
  void wait(pool_id pool, slot_id slot, std::uint32_t use) noexcept {
    if (use == none) return never_.push_back(index_of(pool), slot);
    waiting_.set(use);
    fetch_soon(&keys_[use]);  // far away in memory, and read when this is a victim
    auto& furthest = pools_[pool].furthest;
    furthest = std::min(furthest, std::size_t{use});
  }

  std::size_t experts_;
  std::uint64_t clock_ = 0;
  std::shared_ptr<const use_order> numbered_;
  const std::uint32_t* ordinals_;   // [use] its visit; points into numbered_, like the next two
  const std::uint32_t* following_;  // [use] next use of the same key, or none
  const std::uint32_t* keys_;       // [use]
  std::size_t widest_;              // most uses of one visit
  std::vector<std::uint32_t> upcoming_;  // [key] next use; stale while the key is resident
  std::vector<slot_id> slot_of_;         // [key] slot of a resident key
  per_slot<resident> residents_;         // [slot]
  recency_list never_;                   // residents that are never used again, one list per pool
  std::vector<tie> tied_;
  sparse_bits waiting_;  // uses that a resident waits for
  per_pool<range> pools_;
};

static_assert(is_eviction_policy<belady>());

}  // namespace hotset
