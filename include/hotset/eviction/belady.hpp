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
///       share its next visit, and 1 / 4096 of the uses of the pool between them. 12 bytes per use.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hotset/concepts/eviction_policy.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/order/recency_list.hpp"
#include "hotset/order/sparse_bits.hpp"
#include "hotset/trace/policy_knowledge.hpp"

namespace hotset::inline v0 {

class belady {
 public:
  struct config {
    std::shared_ptr<const future_uses> future{};
    template <class From>
    static config read(From&, const policy_knowledge& known) {
      return {known.future};
    }
    [[nodiscard]] validation validate() const {
      if (!future) return error{"belady future = none, accepted: the uses of the trace to come"};
      return std::nullopt;
    }
    /// As validate(), and the future must belong to this shape.
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
        upcoming_(layout.shape().keys(), none),
        slot_of_(layout.shape().keys(), no_slot),
        residents_(layout.slots()),
        never_(layout.slots(), layout.pools()),
        tied_(layout.slots()),
        pools_(layout.pools()) {
    // Refused by validate() otherwise; without a future no key is ever used again.
    if (options.future && options.future->keys() == layout.shape().keys())
      number_uses(layout, *options.future);
  }

  void on_hit(const access& a) noexcept {
    auto& r = residents_[a.slot];
    r.position = ++clock_;
    const auto old = r.use;
    if (old == none) return never_.move_to_back(index_of(a.pool), a.slot);
    r.use = after(old, a.ordinal);
    if (r.use == old) return;
    waiting_.reset(old);
    wait(a, r.use);
  }
  void on_fill(const access& a) noexcept {
    const auto key = index(a.key);
    slot_of_[key] = a.slot;
    auto& r = residents_[a.slot];
    r.position = ++clock_;
    r.use = after(upcoming_[key], a.ordinal);
    wait(a, r.use);
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
      // All that wait for the same visit, in order of recency.
      const auto visit = ordinals_[use];
      std::size_t ties = 0;
      for (; use != pool.end && ordinals_[use] == visit; use = waiting_.next(use + 1, pool.end)) {
        const auto slot = slot_of_[keys_[use]];
        tied_[ties++] = {residents_[slot].position, slot};
      }
      if (ties > 1)
        std::sort(tied_.begin(), tied_.begin() + static_cast<std::ptrdiff_t>(ties),
                  [](const tie& a, const tie& b) { return a.position < b.position; });
      for (std::size_t n = 0; n < ties && count < out.size(); ++n)
        if (eligible.test(tied_[n].slot)) out[count++] = tied_[n].slot;
    }
    return count;
  }

 private:
  /// Uses are numbered pool by pool, the last one of a pool first: the furthest is the lowest number.
  static constexpr std::uint32_t none = future_uses::never;

  struct resident {
    std::uint64_t position = 0;
    std::uint32_t use = none;  // the next one
  };
  struct tie {
    std::uint64_t position = 0;
    slot_id slot = no_slot;
  };
  struct range {
    std::size_t furthest = 0;  // no use before it is waited for
    std::size_t end = 0;
  };
  [[nodiscard]] std::size_t index(expert_key key) const noexcept {
    return index_of(key.layer) * experts_ + index_of(key.expert);
  }

  void number_uses(const pool_layout& layout, const future_uses& future) {
    const auto keys = future.keys_in_order();
    const auto pool_of = [&](std::size_t key) {
      return layout.pool_of_layer(static_cast<layer_id>(key / experts_));
    };
    for (const auto key : keys) ++pools_[pool_of(key)].end;
    std::size_t begin = 0;
    for (auto& pool : pools_) {
      pool.furthest = begin;
      begin = pool.end += begin;
    }
    ordinals_.resize(keys.size());
    following_.resize(keys.size());
    keys_.resize(keys.size());
    waiting_ = sparse_bits(keys.size());
    std::vector<std::size_t> unseen(future.keys());  // uses of the key that are not numbered yet
    for (std::size_t k = 0; k < unseen.size(); ++k) unseen[k] = future.uses(k).size();
    auto next = pools_;
    for (auto n = keys.size(); n-- > 0;) {
      const std::size_t key = keys[n];
      const auto use = next[pool_of(key)].furthest++;
      ordinals_[use] = future.uses(key)[--unseen[key]];
      keys_[use] = keys[n];
      following_[use] = upcoming_[key];
      upcoming_[key] = static_cast<std::uint32_t>(use);
    }
    for (auto& pool : pools_) pool.furthest = pool.end;
  }
  /// The first use of a key after a visit, from one that is not too late on.
  [[nodiscard]] std::uint32_t after(std::uint32_t use, std::uint64_t ordinal) const noexcept {
    // The rule: the visit uses the key, and its ordinal need not be compared with the following one's.
    if (use != none && ordinals_[use] == ordinal) return following_[use];
    while (use != none && ordinals_[use] <= ordinal) use = following_[use];
    return use;
  }
  void wait(const access& a, std::uint32_t use) noexcept {
    if (use == none) return never_.push_back(index_of(a.pool), a.slot);
    waiting_.set(use);
    auto& furthest = pools_[a.pool].furthest;
    furthest = std::min(furthest, std::size_t{use});
  }

  std::size_t experts_;
  std::uint64_t clock_ = 0;
  std::vector<std::uint32_t> ordinals_;   // [use] its visit
  std::vector<std::uint32_t> following_;  // [use] the next one of the same key, or none
  std::vector<std::uint32_t> keys_;       // [use]
  std::vector<std::uint32_t> upcoming_;   // [key] use, out of date while the key is resident
  std::vector<slot_id> slot_of_;          // [key] of those resident
  per_slot<resident> residents_;          // [slot]
  sparse_bits waiting_;                   // uses that a resident waits for
  recency_list never_;                    // residents without a use to come, one list per pool
  std::vector<tie> tied_;
  per_pool<range> pools_;
};

static_assert(is_eviction_policy<belady>());

}  // namespace hotset::inline v0
