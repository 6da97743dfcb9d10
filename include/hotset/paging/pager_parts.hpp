// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The residents, and the policies, ledger and callback that are notified of changes. All parts of a pager share one.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/core/fill.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/status.hpp"
#include "hotset/core/visit_event.hpp"
#include "hotset/paging/residency/prefetched_slots.hpp"
#include "hotset/paging/residency/residents.hpp"
#include "hotset/paging/visit/visit_ledger.hpp"
#include "hotset/paging/visit/visit_plan.hpp"
#include "hotset/policy/admission_policy.hpp"
#include "hotset/policy/eviction_policy.hpp"
#include "hotset/policy/policy_config.hpp"

namespace hotset {

/// A copy of an expert that lost its slot. Causes: eviction, replacement by a better precision, invalidation, trim, a
/// smaller quota, a failed or cancelled transfer, or an aborted plan whose copy had started.
struct removal {
  expert_key key{};
  precision_id precision{};
  slot_id slot = no_slot;
  ticket last_reader = no_ticket;  ///< after this ticket nothing reads the bytes any more
};

/// Callback for engines that store bytes per expert: called once for each expert that lost its slot, in the call that
/// causes it. For an eviction by a visit, that call is the commit. It must not call the pager.
struct removal_listener {
  void (*tell)(void* who, const removal& of) noexcept = nullptr;  ///< null: no reports
  void* who = nullptr;

  [[nodiscard]] bool listens() const noexcept { return tell != nullptr; }
  /// Pre: listens().
  void operator()(const removal& of) const noexcept { tell(who, of); }
};

/// Cause of a slot's loss of its key.
enum class loss : std::uint8_t {
  evicted,
  taken_back,  ///< the copy was cancelled before it began
  outdone,     ///< replaced by a copy of a better precision
};

/// No allocation after construction.
template <eviction_policy Eviction, admission_policy Admission>
struct pager_parts {
  pager_parts(const pool_layout& layout, const typename Eviction::config& eviction_setup,
              const typename Admission::config& admission_setup, removal_listener listener = {})
      : held(layout),
        eviction(layout, eviction_setup),
        admission(layout, admission_setup),
        ledger(layout.shape()),
        requests(layout.slots()),
        victims(
            std::max(layout.shape().distinct_per_visit(), std::min(most_at_once, layout.slots()))),
        removed(listener),
        admits_all_(facts_of(admission).admits_all) {}

  /// Victims to request at a time if their number is not known in advance.
  static constexpr std::size_t most_at_once = 16;

  residents held;
  Eviction eviction;
  Admission admission;
  visit_ledger ledger;
  prefetched_slots requests;
  std::vector<slot_id> victims;  ///< of the plan in progress; valid until the next choice
  removal_listener removed;
  bool speculated = false;  ///< a prefetch was made and may still be unsettled

  /// True if every miss gets a slot, so that the admission policy is not called.
  [[nodiscard]] bool admits_all() const noexcept {
    return Admission::traits.admits_all || admits_all_;
  }
  /// The slots that the policy evicts next from the context's pool, at most `count`: a view of `victims`.
  [[nodiscard]] std::span<const slot_id> choose(const visit_context& context,
                                                std::size_t count) noexcept {
    const auto out = std::span(victims).first(count);
    return out.first(eviction.select_victims(context, held.evictable(), out));
  }

  /// False if there is no unused prefetch, outstanding copy or request to settle.
  [[nodiscard]] bool speculating() noexcept {
    if (speculated)
      speculated = held.unused_prefetches() + held.filling() != 0 || !requests.empty();
    return speculated;
  }

  /// Reports the loss of the slot's key to all parts except the eviction policy. Call it before the slot is vacated.
  void account_loss(slot_id slot, expert_key key, loss how = loss::evicted) noexcept {
    if (removed.listens()) [[unlikely]]
      removed({key, held.precision_of(slot), slot, held[slot].last_reader});
    if (!admits_all() && how != loss::outdone) admission.on_evict(key, ledger.step());
    if (how == loss::evicted)
      held[slot].unused_prefetch ? ledger.evicted(key, false, requests.meant_for(slot))
                                 : ledger.evicted(key);
    if (!speculating()) return;
    if (held.settle_prefetch(slot)) {
      ++ledger.totals.wasted_prefetches;
      ledger.totals.bytes_prefetch_wasted += held.bytes_in(slot);
    }
    requests.forget(slot);
  }
  /// Removes the key from the slot. The caller decides about the slot itself.
  void forget(slot_id slot, loss how = loss::evicted) noexcept {
    const auto key = held[slot].key;
    eviction.on_evict(slot, key);
    account_loss(slot, key, how);
    held.vacate(slot);
  }
  /// Removes the key from the slot and returns the slot to its pool.
  void release(slot_id slot, loss how = loss::evicted) noexcept {
    forget(slot, how);
    held.give_back(slot);
  }

  /// Evicts in policy order while more() is true and calls evict(slot). Requests `at_once` victims at a time and skips
  /// `spared`. Returns the number of evictions; stops early if nothing more may be evicted.
  template <class More, class Evict>
  std::size_t evict_while(const visit_context& context, std::span<const slot_id> spared,
                          std::size_t at_once, More more, Evict evict) noexcept {
    const residents::mask kept(held, spared);
    std::size_t evicted = 0;
    while (more()) {
      const auto chosen = choose(context, std::min(at_once, victims.size()));
      for (std::size_t i = 0; i < chosen.size() && more(); ++i, ++evicted) evict(chosen[i]);
      if (chosen.empty()) break;
    }
    return evicted;
  }
  /// Releases all slots, ignoring no_slot. Errors: busy (a slot may not be evicted); then none is released.
  status release_all(std::span<const slot_id> slots) noexcept {
    for (const auto slot : slots)
      if (slot != no_slot && !held.is_evictable(slot)) return status::busy;
    for (const auto slot : slots)
      if (slot != no_slot) release(slot);
    return status::ok;
  }
  /// Reduces the context's pool to `slots`. Errors: busy; then nothing has changed.
  status shrink(const visit_context& context, std::int32_t slots) noexcept {
    const auto& pool = held.pool(context.pool);
    const auto surplus = static_cast<std::size_t>(pool.capacity - slots);
    const auto lacks = [&] { return held.free_count(context.pool) < surplus; };
    if (surplus > held.free_count(context.pool) + pool.evictable) return status::busy;
    evict_while(context, {}, 1, lacks, [&](slot_id slot) { release(slot); });
    if (lacks()) return status::busy;
    held.give_up(context.pool, surplus);
    return status::ok;
  }

  /// Undoes a reservation whose copy was not started. The victim returns, unless its own copy has failed meanwhile.
  void return_slot(const fill& f) noexcept {
    if (f.victim != no_key && held[f.slot].state == slot_state::free)
      release(f.slot);
    else
      held.give_back(f);
  }
  /// Undoes a reservation whose copy may have started. The slot's old key, pins and tickets are lost.
  void spoil_slot(const fill& f) noexcept {
    f.victim == no_key ? held.give_back(f.slot) : release(f.slot);
    if (removed.listens()) removed({f.key, f.precision, f.slot, no_ticket});
    held.spoil(f);
    ++ledger.totals.failed_fills;
  }

 private:
  bool admits_all_;
};

}  // namespace hotset
