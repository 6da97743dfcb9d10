// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Copies that no visit waits for: prefetches, as far as a guard allows, and warm starts.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/core/forecast.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/visit_event.hpp"
#include "hotset/paging/residency/expected_uses.hpp"
#include "hotset/paging/residency/residents.hpp"
#include "hotset/paging/visit/visit_plan.hpp"

namespace hotset {

/// No allocation after construction.
class speculation {
 public:
  /// Restrictions on the copies of a plan.
  struct terms {
    /// A prefetch may evict as far as the guard allows. A warm start uses free slots only and is not counted as a
    /// prediction.
    bool evicts = true;
    precision_id precision{};
    /// Layer of the split visit that has groups left, if any. Its groups need all slots that were counted when it was
    /// divided, so none of its pools' slots is used.
    layer_id divided = before_layers;
    std::size_t most_fills = ~std::size_t{0};
  };

  speculation(const geometry& shape, prefetch_guard guard, std::size_t most_fills)
      : guard_(guard),
        expected_(guard == prefetch_guard::predicted ? expected_uses(shape) : expected_uses()) {
    start_.reserve(most_fills);
  }

  /// Stores the forecast after a visit, for the `predicted` guard.
  void expect(const visit_context& context, const forecast& expected) noexcept {
    if (guard_ == prefetch_guard::predicted) expected_.take(context, expected);
  }

  /// Requests for the first keys of a warm start, in order, as many as one plan takes. Valid until the next call.
  [[nodiscard]] std::span<const prefetch_request> start_with(
      std::span<const expert_key> keys) noexcept {
    start_.clear();
    for (const auto key : keys.first(std::min(keys.size(), start_.capacity())))
      start_.push_back({key, 0, 1.0F});
    return start_;
  }

  /// Plans copies for the requests, best first. Returns the number of processed requests. Requests for resident keys
  /// are noted for the policy; requests without a copy are deferred.
  template <class Parts>
  std::size_t plan(Parts& parts, const visit_context& context,
                   std::span<const prefetch_request> requests, const terms& how,
                   visit_plan& plan) noexcept {
    auto& draft = detail::draft_of(plan);
    draft.reset();
    draft.routed = {};
    draft.tokens = {};
    draft.context = context;
    draft.speculative = true;
    draft.refused = 0;
    residents::mask spared(parts.held);
    std::size_t dealt_with = 0;
    for (const auto& request : requests) {
      if (is_full(draft)) break;
      const auto at = static_cast<std::uint32_t>(dealt_with++);
      if (!parts.held.shape().contains(request.key) || is_planned(plan, request.key)) continue;
      const auto slot = parts.held.map().locate(request.key);
      if (slot == no_slot) {
        if (draft.count.fills >= how.most_fills || !reserve(parts, plan, request, how, at, spared))
          draft.deferred[draft.count.deferred++] = at;
      } else if (how.evicts) {
        if (guard_ != prefetch_guard::none) spared.add(slot);
        draft.requested[draft.count.requested++] = describe(parts.held, request, slot, context);
      }
    }
    return dealt_with;
  }

  /// Keeps only the first `count` copies. Defers the others and restores their victims.
  template <class Parts>
  static void keep_first(Parts& parts, visit_plan& plan, std::size_t count) noexcept {
    auto& draft = detail::draft_of(plan);
    while (draft.count.fills > count) {
      const auto last = --draft.count.fills;
      draft.deferred[draft.count.deferred++] = draft.request_of[last];
      parts.return_slot(draft.fills[last]);
    }
    std::sort(draft.deferred.begin(), draft.deferred.begin() + draft.count.deferred);
  }

  template <class Parts>
  [[gnu::noinline]] static void commit(Parts& parts, const visit_plan& plan) noexcept {
    const auto& draft = detail::draft_of(plan);
    parts.ledger.totals.refused_prefetches += draft.refused;
    for (std::size_t i = 0; i < draft.count.fills; ++i) {
      const auto& f = draft.fills[i];
      place(parts, f);
      if (f.speculative) parts.requests.remember(f.slot, draft.requested_steps[i]);
      parts.eviction.on_prefetch(
          describe(parts.held, {f.key, draft.requested_steps[i], 1.0F}, f.slot, draft.context));
    }
    for (std::size_t i = 0; i < draft.count.requested; ++i) {
      const auto& a = draft.requested[i];
      if (parts.held.map().locate(a.key) != a.slot) continue;  // evicted for a better request
      parts.requests.remember(a.slot, a.step);
      parts.speculated = true;
      notify_request(parts.eviction, a);
    }
  }

  /// Lists the slots of hits whose copy is outstanding.
  [[gnu::noinline]] static void find_late(const residents& held, visit_plan& plan) noexcept {
    auto& draft = detail::draft_of(plan);
    for (std::size_t i = 0; i < draft.count.distinct; ++i)
      if (draft.service_of(i) == service::hit && held[draft.slots[i]].state == slot_state::filling)
        draft.late[draft.count.late++] = draft.slots[i];
  }
  /// Called at a visit's commit: counts first uses of prefetched experts, and publishes late ones. Drops requests for
  /// this visit or earlier ones.
  template <class Parts>
  [[gnu::noinline]] static void meet(Parts& parts, visit_plan& plan) noexcept {
    auto& draft = detail::draft_of(plan);
    const auto services = plan.services();
    for (std::size_t i = 0; i < draft.count.distinct; ++i)
      if (services[i] == service::hit) use(parts, draft.slots[i]);
    const auto& context = draft.context;
    parts.requests.settle(
        context.step, [&](slot_id slot) { return parts.held[slot].key.layer == context.layer; });
  }

 private:
  static bool is_full(const plan_draft& draft) noexcept {
    return draft.count.fills == draft.capacity() || draft.count.requested == draft.capacity() ||
           draft.count.deferred == draft.capacity();
  }
  static bool is_planned(const visit_plan& plan, expert_key key) noexcept {
    return std::ranges::any_of(plan.fills(), [key](const fill& f) { return f.key == key; });
  }
  static prefetch_event describe(const residents& held, const prefetch_request& request,
                                 slot_id slot, const visit_context& context) noexcept {
    return {.key = request.key,
            .slot = slot,
            .pool = held.pool_of(slot),
            .step = request.for_step,
            .ordinal = context.ordinal,
            .precision = held.precision_of(slot)};
  }

  template <class Parts>
  bool reserve(Parts& parts, visit_plan& plan, const prefetch_request& request, const terms& how,
               std::uint32_t at, residents::mask& spared) noexcept {
    auto& draft = detail::draft_of(plan);
    auto f = find_slot(parts, plan, request, how);
    if (f.slot == no_slot) {
      draft.refused += how.evicts ? 1U : 0U;
      return false;
    }
    f.speculative = how.evicts;
    if (f.victim != no_key) spared.add(f.slot);
    draft.requested_steps[draft.count.fills] = request.for_step;
    draft.request_of[draft.count.fills] = at;
    draft.fills[draft.count.fills++] = f;
    return true;
  }
  /// Reserves a slot, or returns a fill without a slot if none is available.
  template <class Parts>
  fill find_slot(Parts& parts, const visit_plan& plan, const prefetch_request& request,
                 const terms& how) noexcept {
    const auto& layout = parts.held.layout();
    const auto key = request.key;
    const auto pool = layout.pool_of(key.layer, how.precision);
    if (how.divided >= 0 && layout.pool_of(how.divided, how.precision) == pool) return {};
    if (how.evicts && !leaves_room_for_demand(parts.held, plan, key.layer, pool)) return {};
    if (parts.held.free_count(pool) != 0) return parts.held.reserve_free(key, pool);
    const auto victim = how.evicts ? choose_victim(parts, plan.context(), pool, request) : no_slot;
    return victim == no_slot ? fill{} : parts.held.reserve_victim(key, victim);
  }
  /// Outstanding copies occupy their slots. Keeps enough slots for one token, so that a visit can always find victims.
  static bool leaves_room_for_demand(const residents& held, const visit_plan& plan, layer_id layer,
                                     pool_id pool) noexcept {
    const auto& layout = held.layout();
    const auto slots = [&](pool_id p) { return static_cast<std::size_t>(held.pool(p).capacity); };
    if (on_their_way(held, plan, pool) + kept_for_demand(held, pool) >= slots(pool)) return false;
    if (layout.precisions() == 1) return true;
    auto needed = held.shape().ranks();
    std::size_t all = 0;
    for (std::size_t p = 0; p < layout.precisions(); ++p) {
      const auto one = layout.pool_of(layer, static_cast<precision_id>(p));
      needed += on_their_way(held, plan, one);
      all += slots(one);
    }
    return needed < all;
  }
  static std::size_t on_their_way(const residents& held, const visit_plan& plan,
                                  pool_id pool) noexcept {
    auto count = held.pool(pool).filling;
    for (const auto& f : plan.fills()) count += held.pool_of(f.slot) == pool ? 1U : 0U;
    return count;
  }
  /// Slots to keep for one token's experts. With several precisions, each pool keeps a part of them.
  static std::size_t kept_for_demand(const residents& held, pool_id pool) noexcept {
    const auto k = held.shape().ranks();
    return held.layout().precisions() == 1
               ? k
               : std::min(k, static_cast<std::size_t>(held.pool(pool).capacity) - 1);
  }
  /// Chosen victims stay resident until the whole plan is made, as do requested keys under `named`.
  template <class Parts>
  slot_id choose_victim(Parts& parts, visit_context context, pool_id pool,
                        const prefetch_request& request) noexcept {
    context.pool = pool;
    context.speculative = true;
    residents::mask spared(
        parts.held);  // slots that this request may not evict; another request may
    if (guard_ != prefetch_guard::none)
      for (const auto slot : parts.requests.slots()) spared.add(slot);
    const bool choosy = guard_ == prefetch_guard::predicted;
    const std::size_t asked = choosy ? parts.victims.size() : 1;
    for (auto offered = asked; offered == asked;) {
      const auto chosen = parts.choose(context, asked);
      offered = chosen.size();
      for (const auto slot : chosen) {
        if (!choosy || !expected_.sooner(parts.held[slot].key, request, context)) return slot;
        spared.add(slot);
      }
    }
    return no_slot;
  }

  /// Assigns the slot to an outstanding copy; drops its old key first.
  template <class Parts>
  static void place(Parts& parts, const fill& f) noexcept {
    if (f.victim != no_key) parts.forget(f.slot);
    parts.held.await(f);
    parts.speculated = true;
    auto& totals = parts.ledger.totals;
    const auto bytes = parts.held.bytes_in(f.slot);
    (f.speculative ? totals.bytes_prefetched : totals.bytes_warm) += bytes;
    parts.ledger.filled(f.key.layer, bytes);
    ++totals.speculative_fills;
    if (!f.speculative) parts.ledger.saw(f.key);  // the key was used in an earlier run
  }
  template <class Parts>
  static void use(Parts& parts, slot_id slot) noexcept {
    auto& totals = parts.ledger.totals;
    const auto& entry = parts.held[slot];
    const bool prefetched = parts.held.settle_prefetch(slot);
    if (prefetched) {
      ++totals.prefetch_hits;
      totals.bytes_prefetch_used += parts.held.bytes_in(slot);
    }
    parts.ledger.saw(entry.key);
    if (entry.state != slot_state::filling) return;
    totals.late_prefetches += prefetched ? 1U : 0U;
    parts.held.arrive(slot);
  }

  prefetch_guard guard_;
  expected_uses expected_;
  std::vector<prefetch_request> start_;
};

}  // namespace hotset
