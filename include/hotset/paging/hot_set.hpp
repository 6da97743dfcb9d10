// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The residents together with everyone who must hear of what comes and goes: the parts of a pager share one.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/core/fill.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/visit_event.hpp"
#include "hotset/paging/residency/prefetched_slots.hpp"
#include "hotset/paging/residency/residents.hpp"
#include "hotset/paging/visit/visit_ledger.hpp"
#include "hotset/paging/visit/visit_plan.hpp"
#include "hotset/policy/admission_policy.hpp"
#include "hotset/policy/eviction_policy.hpp"
#include "hotset/policy/policy_config.hpp"

namespace hotset {

/// A copy of an expert that is given up: it was evicted, outdone by a better one, invalidated, trimmed or cut off by a quota, or its
/// transfer failed, was taken back, or was begun for a plan that was aborted.
struct departure {
  expert_key key{};
  precision_id precision{};
  slot_id slot = no_slot;
  ticket last_reader = no_ticket;  ///< when it has arrived nothing reads the bytes any more
};

/// Told once for each, in the call that gives it up; at an eviction by a visit, when that is committed. It must not call the pager.
struct departure_sink {
  void (*tell)(void* who, const departure& of) noexcept = nullptr;  ///< null: no reports
  void* who = nullptr;

  [[nodiscard]] bool listens() const noexcept { return tell != nullptr; }
  /// Pre: listens().
  void operator()(const departure& of) const noexcept { tell(who, of); }
};

/// Why a slot loses its key.
enum class loss : std::uint8_t {
  evicted,
  taken_back,  ///< the copy never began
  outdone,     ///< a better copy of the key takes its place
};

/// No allocation after construction.
template <eviction_policy Eviction, admission_policy Admission>
struct hot_set {
  using eviction_type = Eviction;
  using admission_type = Admission;
  /// Victims that are evicted at a time where their number is not known beforehand.
  static constexpr std::size_t chunk = 16;

  hot_set(const pool_layout& layout, const typename Eviction::config& eviction_setup,
          const typename Admission::config& admission_setup, departure_sink listener = {})
      : held(layout),
        eviction(layout, eviction_setup),
        admission(layout, admission_setup),
        ledger(layout.shape()),
        requests(layout.slots()),
        victims(std::max(layout.shape().distinct_per_visit(), std::min(chunk, layout.slots()))),
        departed(listener),
        admits_all_(facts_of(admission).admits_all) {}

  residents held;
  Eviction eviction;
  Admission admission;
  visit_ledger ledger;
  prefetched_slots requests;
  std::vector<slot_id> victims;  ///< of whoever plans: good until the next choice
  departure_sink departed;
  bool speculated = false;  ///< something was prefetched and may not be settled yet

  /// True if every miss gets a slot: the admission policy is not called.
  [[nodiscard]] bool admits_all() const noexcept {
    return Admission::traits.admits_all || admits_all_;
  }
  /// The slots that the policy would give up next in the context's pool, `count` at most: a view of `victims`.
  [[nodiscard]] std::span<const slot_id> choose(const visit_context& context,
                                                std::size_t count) noexcept {
    const auto out = std::span(victims).first(count);
    return out.first(eviction.select_victims(context, held.evictable(), out));
  }

  /// False while nothing was prefetched: then there is nothing to settle.
  [[nodiscard]] bool speculating() noexcept {
    if (speculated)
      speculated = held.unused_prefetches() + held.filling() != 0 || !requests.empty();
    return speculated;
  }

  /// Everyone hears that the slot is about to lose its key.
  void tell_loss(slot_id slot, expert_key key, loss how = loss::evicted) noexcept {
    eviction.on_evict(slot, key);
    account_loss(slot, key, how);
  }
  /// Everyone but the eviction policy does, which hears of a visit's victims with the visit.
  void account_loss(slot_id slot, expert_key key, loss how = loss::evicted) noexcept {
    if (departed.listens()) [[unlikely]]
      departed({key, held.precision_of(slot), slot, held[slot].last_reader});
    if (!admits_all() && how != loss::outdone) admission.on_evict(key, ledger.step());
    if (how == loss::evicted)
      held[slot].unused_prefetch ? ledger.evicted(key, false, requests.meant_for(slot))
                                 : ledger.evicted(key);
    if (!speculating()) return;
    if (held.settle_prefetch(slot)) ledger.wasted_prefetch(held.bytes_in(slot));
    requests.forget(slot);
  }
  /// The slot no longer holds its key; the caller decides what becomes of the slot.
  void forget(slot_id slot, loss how = loss::evicted) noexcept {
    tell_loss(slot, held[slot].key, how);
    held.vacate(slot);
  }
  /// Forgets a slot's key and gives the slot back to its pool.
  void release(slot_id slot, loss how = loss::evicted) noexcept {
    forget(slot, how);
    held.give_back(slot);
  }

  /// As release; the slot is taken after those that are free already.
  void release_early(slot_id slot) noexcept {
    forget(slot);
    held.give_back_last(slot);
  }

  /// A reserved copy was not started: the victim is where it was, unless its own copy has failed meanwhile.
  void return_slot(const fill& f) noexcept {
    if (f.victim != no_key && held[f.slot].state == slot_state::free)
      release(f.slot);
    else
      held.give_back(f);
  }
  /// A reserved copy may have started and was given up: what the slot held is gone, and its pins and tickets with it.
  void spoil_slot(const fill& f) noexcept {
    f.victim == no_key ? held.give_back(f.slot) : release(f.slot);
    if (departed.listens()) departed({f.key, f.precision, f.slot, no_ticket});
    held.spoil(f);
    ++ledger.totals.failed_fills;
  }

  /// A speculative copy has arrived. Ignored if the slot was reused since.
  void arrived(slot_id slot, std::uint32_t generation) noexcept {
    if (held.awaits(slot, generation)) held.arrive(slot);
  }
  /// A speculative copy was taken back before a byte of it moved. Ignored if the slot was reused since.
  void cancelled(slot_id slot, std::uint32_t generation) noexcept {
    if (!held.awaits(slot, generation)) return;
    if (held.settle_prefetch(slot)) ledger.cancelled(held.bytes_in(slot));
    release(slot, loss::taken_back);
  }
  /// A copy will never arrive. Ignored if the slot was reused since.
  void failed(slot_id slot, std::uint32_t generation) noexcept {
    const auto& entry = held[slot];
    if (entry.generation != generation || entry.state == slot_state::free) return;
    ++ledger.totals.failed_fills;
    held.drop_pins(slot);
    if (held.locate(entry.key) == slot) return release(slot);
    held.lose_victim(slot);  // the end of the plan that has reserved the slot does the rest
  }

 private:
  bool admits_all_;
};

}  // namespace hotset
