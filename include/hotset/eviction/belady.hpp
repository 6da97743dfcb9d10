// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Evicts the slot whose key is used again furthest in the future: the offline optimum to compare with.
///
/// Rule: order by the next visit that uses the key after the running one, furthest first, never first of
///       all; then recency position. Admission is forced: every miss that is fetched takes a slot.
/// Source: Belady 1966; event-atomic form as in WiSP.
/// Deviations: none. With token groups, a group is an event: the future is built from groups.
/// Exact: yes (never changes what is computed). Offline: needs the trace beforehand.
/// Cost: O(1) per hit and fill; a victim costs O(1) plus the ineligible slots passed over, those that
///       share its next visit, and 1 / 4096 of the uses of the pool between them. Memory: a use_order, and a bit per
///       use.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
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
    /// Numbers of the same future's uses. None: they are numbered for this policy alone.
    shared_use_orders numbered{};
    template <class From>
    static config read(From&, const policy_knowledge& known) {
      return {known.future, known.numbered};
    }
    [[nodiscard]] validation validate() const {
      if (!future) return error{"belady future = none, accepted: the uses of the trace to come"};
      return std::nullopt;
    }
    /// Also refuses a future of another shape.
    [[nodiscard]] validation validate(const geometry& shape) const {
      if (auto bad = validate()) return bad;
      if (future->keys() != shape.keys())
        return error{"belady future has " + std::to_string(future->keys()) +
                     " keys, accepted: layers x experts (" + std::to_string(shape.keys()) + ")"};
      return std::nullopt;
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
      // All that wait for the same visit, in order of recency.
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
    std::uint32_t use = none;  // the next one
  };
  struct tie {
    std::uint64_t position = 0;
    slot_id slot = no_slot;
  };
  /// Uses of a pool, of which the furthest has the lowest number.
  struct range {
    std::size_t furthest = 0;  // none before it is waited for
    std::size_t end = 0;
  };
  /// A future of another shape is refused by validate(); without one no key is ever used again.
  static std::shared_ptr<const use_order> number(const pool_layout& layout, const config& options) {
    if (!options.future || options.future->keys() != layout.shape().keys())
      return std::make_shared<const use_order>();
    if (options.numbered) return options.numbered(layout);
    return std::make_shared<const use_order>(layout, *options.future);
  }
  [[nodiscard]] std::size_t index(expert_key key) const noexcept {
    return index_of(key.layer) * experts_ + index_of(key.expert);
  }

  /// True if a use and one behind it are of one visit. Most stand too far apart to look.
  [[nodiscard]] bool same_visit(std::size_t use, std::size_t other,
                                std::size_t end) const noexcept {
    return other - use < widest_ && other != end && ordinals_[other] == ordinals_[use];
  }
  /// The first use of a key after a visit, from one that is not too late on.
  [[nodiscard]] std::uint32_t after(std::uint32_t use, std::uint64_t ordinal) const noexcept {
    // The rule: the visit uses the key, and its ordinal need not be compared with the following one's.
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
    fetch_soon(&keys_[use]);  // far away, and read when this is a victim
    auto& furthest = pools_[pool].furthest;
    furthest = std::min(furthest, std::size_t{use});
  }

  std::size_t experts_;
  std::uint64_t clock_ = 0;
  std::shared_ptr<const use_order> numbered_;
  const std::uint32_t* ordinals_;        // [use] its visit; of numbered_, as the next two are
  const std::uint32_t* following_;       // [use] the next one of the same key, or none
  const std::uint32_t* keys_;            // [use]
  std::size_t widest_;                   // visit: so many uses
  std::vector<std::uint32_t> upcoming_;  // [key] use, out of date while the key is resident
  std::vector<slot_id> slot_of_;         // [key] of those resident
  per_slot<resident> residents_;         // [slot]
  recency_list never_;                   // residents without a use to come, one list per pool
  std::vector<tie> tied_;
  sparse_bits waiting_;  // uses that a resident waits for
  per_pool<range> pools_;
};

static_assert(is_eviction_policy<belady>());

}  // namespace hotset
