// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Decides for each visit which experts get a slot and which slots are evicted. It moves no bytes.
///
/// Every visit is event-atomic. Hits and misses of its distinct experts are decided by residency before the visit.
/// The whole visit is protected before a victim is chosen. Policies are notified afterwards, in routed order.
///
/// A visit's calls: `plan` decides and reserves; `commit` publishes and notifies the policies; `abort` undoes.
/// A visit whose experts do not fit is split: commit each group, then call `plan_next` until `!plan.more()`.
/// `serve` does all of this. Parts: see docs/architecture.md.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hotset/admission/always.hpp"
#include "hotset/core/forecast.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/core/platform/compiler.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/core/status.hpp"
#include "hotset/miss/fetch.hpp"
#include "hotset/paging/demand.hpp"
#include "hotset/paging/explain.hpp"
#include "hotset/paging/miss_decisions.hpp"
#include "hotset/paging/pager_parts.hpp"
#include "hotset/paging/pager_stats.hpp"
#include "hotset/paging/residency/residents.hpp"
#include "hotset/paging/speculation.hpp"
#include "hotset/paging/visit/visit_commit.hpp"
#include "hotset/paging/visit/visit_groups.hpp"
#include "hotset/paging/visit/visit_lookup.hpp"
#include "hotset/paging/visit/visit_plan.hpp"
#include "hotset/policy/admission_policy.hpp"
#include "hotset/policy/eviction_policy.hpp"
#include "hotset/policy/miss_policy.hpp"
#include "hotset/policy/policy_config.hpp"

namespace hotset {

/// Threads: compatible, one thread at a time. No allocation and no exception after construction.
template <eviction_policy Eviction, admission_policy Admission = always, miss_policy Miss = fetch>
class pager {
 public:
  using eviction_type = Eviction;
  using admission_type = Admission;
  using miss_type = Miss;

  struct config {
    pool_layout layout;
    typename Eviction::config eviction{};
    typename Admission::config admission{};
    typename Miss::config miss{};
    visit_split split = visit_split::by_token;
    prefetch_guard guard = prefetch_guard::named;
    removal_listener removals{};  ///< callback for each copy that loses its slot
    /// If true, an id that is neither an expert nor -1 is refused as invalid_visit. If false, it is ignored, counted,
    /// and -1 in `routed()`.
    bool refuse_unknown_ids = HOTSET_CHECKS != 0;
  };

  /// Errors: the first parameter that cannot work, with its accepted range.
  static result<pager> create(config setup) {
    if (setup.layout.pools() == 0)
      return error{"the pool layout is empty, accepted: one made by pool_layout"};
    choose_unless_chosen<Admission, always>(setup.admission);
    choose_unless_chosen<Miss, fetch>(setup.miss);
    const auto& shape = setup.layout.shape();
    if (auto bad = validate_for(setup.eviction, shape)) return *std::move(bad);
    if (auto bad = validate_for(setup.admission, shape)) return *std::move(bad);
    if (auto bad = validate_for(setup.miss, shape)) return *std::move(bad);
    if (auto bad = miss_decisions<Miss>::check(setup.layout, setup.miss)) return *std::move(bad);
    return pager(checked{}, setup);
  }
#if HOTSET_EXCEPTIONS
  /// Errors: throws invalid_config.
  explicit pager(config setup) : pager(create(std::move(setup)).value()) {}
#endif

  [[nodiscard]] visit_plan make_plan() const { return visit_plan(shape()); }

  // --- visits

  /// Decides a visit. Any status except ok leaves everything unchanged.
  /// Pre: the arrays of `view` stay valid until the commit; in a split visit, until the last group's commit.
  /// Errors: invalid_visit, visit_too_large (see explain_visit), no_victim, does_not_fit (visit_split::refuse),
  /// plan_open, visit_unfinished (the last visit has groups left), invalid_argument (a plan of another shape).
  /// Complexity: O(routed ids + misses * the policy's victim cost).
  status plan(const routing_view& view, visit_plan& plan) noexcept {
    if (is_open()) return status::plan_open;
    if (next_group_ != 0) return status::visit_unfinished;
    if (const auto bad = visit_.check(view, plan); bad != status::ok) return bad;
    if (eviction_wants_routes_) notify_routed(parts_.eviction, view);
    if (admission_wants_routes_) notify_admission_routed(parts_.admission, view);
    visit_.begin(view, parts_.held, plan);
    const auto* left = &view;
    if constexpr (!Miss::traits.fetches_all) left = &decisions_.decide(parts_, visit_, view, plan);
    if (!visit_.misses().empty())
      if (const auto failed = serve_misses(*left, plan); failed != status::ok) return failed;
    return opened(plan);
  }

  /// Plans the next group of the split visit in `plan`. Pre: the previous group was committed and its slots are
  /// unpinned. Then there is room, because speculation takes no slot of the visit while groups are left.
  /// After an error or an abort, the group may be planned again.
  /// Errors: no_plan (the visit in `plan` has no group left or was abandoned, or `plan` was reused), plan_open,
  /// invalid_argument (a plan of another shape), no_victim (more slots were pinned since).
  status plan_next(visit_plan& plan) noexcept {
    if (is_open()) return status::plan_open;
    if (next_group_ == 0) return status::no_plan;
    if (plan.capacity() != visit_.capacity()) return status::invalid_argument;
    if (!is_unfinished(plan)) return status::no_plan;
    if (const auto failed = plan_group(next_group_, plan); failed != status::ok) return failed;
    return opened(plan);
  }

  /// True if the visit in `plan` has groups left.
  [[nodiscard]] bool is_unfinished(const visit_plan& plan) const noexcept {
    return next_group_ != 0 && detail::draft_of(plan).serial == group_serial_;
  }
  /// Abandons the remaining groups of a split visit. Changes of its committed groups stay. Pre: no plan is open.
  void abandon() noexcept {
    HOTSET_ASSERT(!is_open());
    next_group_ = 0;
  }

  /// Serves a whole visit without moving bytes: plans and commits it, and calls use(group) for each group in order.
  /// `use` returns nothing or a status. If it does not return ok, or throws, the remaining groups are abandoned.
  /// Errors: those of plan and plan_next, and the status of `use`.
  template <class Use>
  status serve(const routing_view& view, visit_plan& plan, Use&& use) {
    auto now = this->plan(view, plan);
    if (now != status::ok) return now;
    const abandoning end{*this, plan};
    while (now == status::ok) {
      (void)commit(plan);
      now = detail::shown(use, visit_group(plan, row(view.layer)));
      if (now != status::ok || !plan.more()) break;
      now = plan_next(plan);
    }
    return now;
  }

  /// Publishes a plan, then notifies the policies. Errors: no_plan (`plan` is not the open one).
  status commit(visit_plan& plan) noexcept {
    if (!is_open(plan)) return status::no_plan;
    close();
    auto& draft = detail::draft_of(plan);
    if (draft.speculative) {
      speculation::commit(parts_, plan);
      return status::ok;
    }
    if constexpr (!Miss::traits.fetches_all) decisions_.settle(parts_.ledger, plan);
    commits_.run(parts_, visit_, plan);
    if (!parts_.admits_all()) admission_round::tell(parts_, visit_, plan);
    if (plan.groups() != 1) {
      visit_.count(plan);
      next_group_ = plan.more() ? plan.group() + 1 : 0;
      group_serial_ = draft.serial;
    }
    return status::ok;
  }

  /// Undoes a plan. `submitted[i]` is 1 if the copy of fill i may have started: its slot then becomes free and both
  /// keys are absent, because the old bytes are overwritten. Other fills restore their victim; if its own copy is
  /// outstanding, `arrived` and `failed` still apply to it. Empty: nothing was submitted.
  /// Errors: no_plan (`plan` is not the open one), invalid_argument (another number of fills).
  status abort(visit_plan& plan, std::span<const std::uint8_t> submitted = {}) noexcept {
    if (!is_open(plan)) return status::no_plan;
    const auto fills = plan.fills();
    if (!submitted.empty() && submitted.size() != fills.size()) return status::invalid_argument;
    close();
    if (plan.groups() != 1) group_serial_ = detail::draft_of(plan).serial;
    for (auto i = fills.size(); i-- > 0;) {
      const bool started = !submitted.empty() && submitted[i] != 0;
      started ? parts_.spoil_slot(fills[i]) : parts_.return_slot(fills[i]);
    }
    return status::ok;
  }

  // --- prefetch

  /// Plans speculative copies for a prefetcher's requests, best first, as far as the guard allows. A request for a
  /// resident key only notifies the policy. `context`: the running visit. Commit or abort the plan.
  /// Plans at most `most_fills` copies; `plan.deferred()` lists the requests without one. While a split visit has
  /// groups left, requests get no slots of its pools.
  status plan_prefetch(const visit_context& context, std::span<const prefetch_request> requests,
                       visit_plan& plan, std::size_t most_fills = ~std::size_t{0}) noexcept {
    return speculate(context, requests,
                     {.evicts = true,
                      .precision = decisions_.prefetch_precision(),
                      .divided = next_group_ != 0 ? visit_.groups().visit().layer : before_layers,
                      .most_fills = most_fills},
                     plan)
        .code;
  }
  /// Keeps only the first `count` copies of an open speculative plan. The victims of the others return.
  void keep_first(visit_plan& plan, std::size_t count) noexcept {
    if (is_open(plan) && detail::draft_of(plan).speculative)
      speculation::keep_first(parts_, plan, count);
  }
  /// Sets the forecast after this visit, for the `predicted` guard and for policies with on_forecast. Shape: [tokens *
  /// depth * experts] of the next layers. Complexity: O(tokens * depth * experts).
  void expect(const visit_context& context, const forecast& expected) noexcept {
    notify_forecast(parts_.eviction, context, expected);
    speculation_.expect(context, expected);
  }
  /// Begins a step: policies with on_routed receive its tokens. Pre: view.layer == before_layers.
  void open_step(const routing_view& view) noexcept { notify_routed(parts_.eviction, view); }

  /// Result of `plan_warm`: a status and the number of processed keys.
  struct [[nodiscard]] warm_result {
    status code;
    std::size_t consumed;
  };
  /// Plans copies of `keys` into free slots, the last key as most recent. Call again with the rest until `consumed` is
  /// 0. Errors: plan_open, visit_unfinished (the free slots belong to that visit), invalid_argument.
  warm_result plan_warm(std::span<const expert_key> keys, visit_plan& plan) noexcept {
    if (next_group_ != 0) return {status::visit_unfinished, 0};
    return speculate({}, speculation_.start_with(keys), {.evicts = false}, plan);
  }

  // --- results of copies

  /// Reports that a speculative copy has arrived: its key may be read. Ignored if the slot was reused since.
  void arrived(slot_id slot, std::uint32_t generation) noexcept {
    if (parts_.held.awaits(slot, generation)) parts_.held.arrive(slot);
  }
  /// Reports that a speculative copy was cancelled before any byte moved: its slot becomes free. A plan may be open if
  /// its visit does not use the slot. Ignored if the slot was reused since.
  void cancelled(slot_id slot, std::uint32_t generation) noexcept {
    if (!parts_.held.awaits(slot, generation)) return;
    const bool warm = !parts_.held.settle_prefetch(slot);
    parts_.ledger.cancelled(parts_.held[slot].key.layer, parts_.held.bytes_in(slot), warm);
    parts_.release(slot, loss::taken_back);
  }
  /// Reports that a copy failed: the slot becomes free and no row names it. Ignored if the slot was reused since. A
  /// plan may be open if its visit does not use the key. If that plan has reserved the slot, the key is lost.
  void failed(slot_id slot, std::uint32_t generation) noexcept {
    const auto& entry = parts_.held[slot];
    if (entry.generation != generation || entry.state == slot_state::free) return;
    ++parts_.ledger.totals.failed_fills;
    parts_.held.drop_pins(slot);
    if (locate(entry.key) == slot) return parts_.release(slot);
    parts_.held.lose_victim(
        slot);  // the open plan that reserved the slot does the rest when it ends
  }

  /// Protects a slot's contents from eviction while an engine reads it. Returns a pin that ends only this protection.
  slot_pin pin(slot_id slot) noexcept { return parts_.held.pin(slot); }
  /// Ends one pin. `reader`: the point after which the slot's bytes are no longer read. Ignored if the slot has a new
  /// key, because then the pinned copy had failed.
  void unpin(slot_pin pinned, ticket reader = no_ticket) noexcept {
    parts_.held.unpin(pinned, reader);
  }
  /// Makes copies that are planned into the slot from now on wait for `point`.
  void wait_before_fill(slot_id slot, ticket point) noexcept {
    parts_.held.wait_before_fill(slot, point);
  }

  // --- explicit evictions

  /// Evicts in policy order until the pool's experts take at most `bytes`. Never evicts `protected_slots`. Returns the
  /// number of evictions; stops early if nothing more may be evicted.
  std::size_t trim(const visit_context& context, std::uint64_t bytes,
                   std::span<const slot_id> protected_slots) noexcept {
    if (is_open()) return 0;
    return parts_.evict_while(
        context, protected_slots, parts_.most_at_once,
        [&] { return resident_bytes(context.pool) > bytes; },
        [&](slot_id slot) { parts_.release(slot); });
  }
  /// Evicts ahead of a visit of the context's layer, in policy order, until the context's pool has `slots` free slots.
  /// Slots that are already free count. Never evicts `spared`. Calls released(slot, key) after each eviction. Copies
  /// take the slots in order of release. Returns the number of evictions; stops early if no slot may be evicted.
  template <class Released>
  std::size_t pre_evict(const visit_context& context, std::size_t slots,
                        std::span<const slot_id> spared, Released released) noexcept {
    if (is_open()) return 0;
    return parts_.evict_while(
        context, spared, parts_.most_at_once, [&] { return free_slots(context.pool) < slots; },
        [&](slot_id slot) {
          const auto key = parts_.held[slot].key;
          parts_.forget(slot);
          parts_.held.give_back_last(slot);
          parts_.ledger.pre_evicted(key, context.step);
          released(slot, key);
        });
  }
  [[nodiscard]] std::size_t free_slots(pool_id pool) const noexcept {
    return parts_.held.free_count(pool);
  }

  /// Drops a key because its host bytes change or are freed. Errors: invalid_argument, plan_open, busy (a visit reads
  /// it, or its copy is outstanding: drain first).
  status invalidate(expert_key key) noexcept {
    if (!shape().contains(key)) return status::invalid_argument;
    if (is_open()) return status::plan_open;
    return parts_.release_all(located(key.layer).subspan(index_of(key.expert), 1));
  }
  /// Drops all keys of a layer; on any error, none of them.
  status invalidate(layer_id layer) noexcept {
    if (!is_within(layer, shape().layers)) return status::invalid_argument;
    return is_open() ? status::plan_open : parts_.release_all(located(layer));
  }

  /// Sets the number of slots of a layer's pool. Shrinking evicts in policy order and makes the slots spare within
  /// their size class; growing takes spare slots. On any error nothing has changed.
  /// Errors: invalid_argument (below least_quota, or above the pool's experts), busy, exceeds_memory, plan_open,
  /// visit_unfinished.
  status set_quota(layer_id layer, std::int32_t slots) noexcept {
    if (!is_within(layer, shape().layers)) return status::invalid_argument;
    if (is_open()) return status::plan_open;
    if (next_group_ != 0) return status::visit_unfinished;
    const auto pool = layout().pool_of_layer(layer);
    const auto most = layout().at(pool).layers.size() * shape().expert_count();
    if (slots < least_quota(layer) || static_cast<std::size_t>(slots) > most)
      return status::invalid_argument;
    if (slots >= quota(layer)) return parts_.held.claim(pool, slots);
    return parts_.shrink({.layer = layer, .pool = pool, .step = parts_.ledger.step()}, slots);
  }
  /// The fewest slots with which the layer's pools can serve one token. With several precisions, a quota is that of
  /// the highest one, and the other pools' slots count too.
  [[nodiscard]] std::int32_t least_quota(layer_id layer) const noexcept {
    auto slots = shape().top_k;
    for (std::size_t p = 1; p < layout().precisions(); ++p)
      slots -= parts_.held.pool(layout().pool_of(layer, static_cast<precision_id>(p))).capacity;
    return std::max(slots, 1);
  }
  [[nodiscard]] std::int32_t quota(layer_id layer) const noexcept {
    return parts_.held.pool(layout().pool_of_layer(layer)).capacity;
  }

  /// True if no plan is open, no slot is pinned, and no copy is outstanding: slots may be moved.
  [[nodiscard]] bool is_idle() const noexcept {
    return !is_open() && next_group_ == 0 && parts_.held.filling() == 0 &&
           !parts_.held.is_any_pinned();
  }
  /// Moves residents to the first slots of each size class. Slots without a quota are then the class's last ones.
  /// Calls moved(from, to) for each expert whose bytes must be copied. The policy's order stays.
  /// Pre: is_idle(). Complexity: O(slots * size classes); not for the hot path.
  template <class Moved>
  void compact(Moved moved) {
    HOTSET_ASSERT(is_idle());
    parts_.held.gather_spare([&](slot_id from, slot_id to) {
      parts_.requests.move(from, to);
      parts_.eviction.on_move(from, to);
      moved(from, to);
    });
  }

  /// Resident keys in eviction order, pool by pool. Save them to restart with the same residents, see plan_warm.
  /// Pinned and filling slots are missing: drain first. Allocates; not for the hot path.
  [[nodiscard]] std::vector<expert_key> residents() {
    std::vector<expert_key> keys;
    std::vector<slot_id> order(layout().slots());
    for (const auto p : each<pool_id>(layout().pools())) {
      const visit_context context{
          .layer = layout().at(p).layers.front(), .pool = p, .step = parts_.ledger.step()};
      const auto count = parts_.eviction.select_victims(context, parts_.held.evictable(), order);
      for (const auto slot : std::span(order).first(count)) keys.push_back(parts_.held[slot].key);
    }
    return keys;
  }

  // --- contents of slots

  /// Shape: [experts]. The slot of every expert whose bytes may be read, -1 for others.
  [[nodiscard]] std::span<const slot_id> row(layer_id layer) const noexcept {
    return parts_.held.map().row(layer);
  }
  /// Version of the row; changes with the row, and 0 if the row never changed.
  [[nodiscard]] std::uint64_t row_version(layer_id layer) const noexcept {
    return parts_.held.map().version(layer);
  }
  [[nodiscard]] slot_id locate(expert_key key) const noexcept {
    return parts_.held.map().locate(key);
  }
  /// Shape: [experts]. Like `row`, but includes slots of outstanding copies.
  [[nodiscard]] std::span<const slot_id> located(layer_id layer) const noexcept {
    return parts_.held.map().located(layer);
  }
  [[nodiscard]] const slot_entry& slot(slot_id s) const noexcept { return parts_.held[s]; }
  [[nodiscard]] precision_id precision_of(slot_id slot) const noexcept {
    return parts_.held.precision_of(slot);
  }
  [[nodiscard]] std::uint64_t resident_bytes(pool_id pool) const noexcept {
    return parts_.held.pool(pool).resident_bytes;
  }

  /// Complexity: O(layers). Allocates; not for the hot path.
  [[nodiscard]] pager_stats stats() const { return parts_.ledger.stats(); }
  [[nodiscard]] const pool_layout& layout() const noexcept { return parts_.held.layout(); }
  [[nodiscard]] const geometry& shape() const noexcept { return parts_.held.shape(); }
  [[nodiscard]] const Eviction& eviction() const noexcept { return parts_.eviction; }
  [[nodiscard]] const Admission& admission() const noexcept { return parts_.admission; }
  [[nodiscard]] const Miss& misses() const noexcept { return decisions_.policy(); }
  /// A running hash of every fill and eviction. Two pagers with equal decisions have equal hashes.
  [[nodiscard]] std::uint64_t decision_hash() const noexcept { return parts_.held.hash(); }
  /// Warns of a pool that is smaller than one token's cycle, or returns nothing.
  [[nodiscard]] std::optional<std::string> warning() const { return cliff_warning(layout()); }
  /// True if outputs cannot change. False if the miss policy may change them or if visits are split by expert. Also
  /// false with several precisions: a miss may get a lower precision if room is short.
  [[nodiscard]] bool is_exact() const noexcept {
    return facts_of(misses()).is_exact && visit_.groups().how() != visit_split::by_expert &&
           layout().precisions() == 1;
  }

 private:
  /// Scope guard: abandons the visit however serve() ends.
  struct abandoning {
    pager& pages;
    const visit_plan& plan;
    ~abandoning() {
      if (pages.is_unfinished(plan)) pages.next_group_ = 0;
    }
  };
  struct checked {};
  pager(checked, const config& setup)
      : parts_(setup.layout, setup.eviction, setup.admission, setup.removals),
        visit_(setup.layout.shape(), setup.split, facts_of(parts_.eviction).needs_weights,
               setup.refuse_unknown_ids),
        commits_(setup.layout.shape(), setup.layout.slots()),
        admission_(parts_.admits_all() ? 0 : visit_.capacity()),
        decisions_(setup.layout, setup.miss, visit_),
        speculation_(setup.layout.shape(), setup.guard, visit_.capacity()),
        eviction_wants_routes_(facts_of(parts_.eviction).wants_routes),
        admission_wants_routes_(facts_of(parts_.admission).wants_routes) {}

  // Odd while a plan is open. The odd number identifies that plan.
  [[nodiscard]] bool is_open() const noexcept { return serial_ % 2 != 0; }
  [[nodiscard]] bool is_open(const visit_plan& plan) const noexcept {
    return is_open() && detail::draft_of(plan).serial == serial_;
  }
  void open(visit_plan& plan) noexcept { detail::draft_of(plan).serial = ++serial_; }
  status opened(visit_plan& plan) noexcept {
    if (parts_.speculating()) speculation::find_late(parts_.held, plan);
    open(plan);
    return status::ok;
  }
  void close() noexcept { ++serial_; }

  /// Out of line so that the all-hit path spills no registers.
  [[gnu::noinline]] HOTSET_FLATTEN status serve_misses(const routing_view& view,
                                                       visit_plan& plan) noexcept {
    if (!detail::draft_of(plan).judged) parts_.ledger.judge(plan, visit_.misses());
    admission_.refuse(parts_, visit_, plan);
    const auto placed = decisions_.place(parts_, visit_, plan);
    return placed.fits ? status::ok : split(view, plan, placed);
  }
  [[gnu::cold]] status split(const routing_view& view, visit_plan& plan,
                             placement placed) noexcept {
    const auto how = visit_.groups().how();
    if (how == visit_split::refuse) return status::does_not_fit;
    if (how == visit_split::leave_rest) return leave_rest(view, plan, placed);
    const auto divided = visit_.divide(view, parts_.held, plan, placed.room);
    return divided == status::ok ? plan_group(0, plan) : divided;
  }
  status leave_rest(const routing_view& view, visit_plan& plan, placement placed) noexcept {
    while (!placed.fits) {
      visit_.leave_least_used(view, parts_.held, placed.room, plan);
      parts_.ledger.visit.bypasses = plan.host_count();
      if (visit_.misses().empty()) break;
      placed = decisions_.place(parts_, visit_, plan);
    }
    return status::ok;
  }
  [[gnu::noinline]] status plan_group(std::size_t group, visit_plan& plan) noexcept {
    visit_.begin_group(group, parts_.held, plan);
    return decisions_.place(parts_, visit_, plan).fits ? status::ok : status::no_victim;
  }
  warm_result speculate(const visit_context& context, std::span<const prefetch_request> requests,
                        const speculation::terms& how, visit_plan& plan) noexcept {
    if (is_open()) return {status::plan_open, 0};
    if (plan.capacity() != visit_.capacity()) return {status::invalid_argument, 0};
    const auto consumed = speculation_.plan(parts_, context, requests, how, plan);
    open(plan);
    return {status::ok, consumed};
  }

  pager_parts<Eviction, Admission> parts_;
  visit_lookup visit_;
  visit_commit commits_;
  admission_round admission_;
  miss_decisions<Miss> decisions_;
  speculation speculation_;
  bool eviction_wants_routes_;
  bool admission_wants_routes_;
  std::uint64_t serial_ = 0;        ///< incremented when a plan is opened, committed or aborted
  std::size_t next_group_ = 0;      ///< 0: no split visit is running
  std::uint64_t group_serial_ = 0;  ///< serial of the plan with the split visit
};

}  // namespace hotset
