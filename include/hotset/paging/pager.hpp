// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Decides, visit by visit, which experts get a slot and which slots are given up. It moves no bytes.
///
/// Every visit is event-atomic: distinct experts are judged against residency as it was before the visit, the
/// whole visit is protected before a victim is chosen, and policies are told afterwards, in routed order.
///
/// Life of a visit: `plan` decides and reserves; `commit` publishes and tells the policies; `abort` undoes.
/// A visit whose experts do not fit is split: commit each group, then `plan_next` until `!plan.more()`. `serve` does all that.
/// Parts: `visit_lookup` finds what misses, `miss_decisions` asks a miss policy, `demand` and `precision_placement` give
/// slots, `speculation` prefetches. They share one `hot_set`: the residents and who hears of them.

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
#include "hotset/paging/hot_set.hpp"
#include "hotset/paging/miss_decisions.hpp"
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

/// Threads: compatible; one thread at a time. No allocation and no exception after construction.
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
    departure_sink departures{};  ///< hears of every copy that is given up
    /// An id that is no expert and not -1 is invalid_visit. Otherwise it is ignored, counted, and -1 in `routed()`.
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

  /// Decides a visit. On any status but ok nothing has changed.
  /// Pre: the weights of `view` stay valid until the commit, with a split visit all arrays until its last group's.
  /// Errors: invalid_visit, visit_too_large (explain_visit says why), no_victim, does_not_fit (visit_split::refuse),
  /// plan_open, visit_unfinished (the last visit has groups left), invalid_argument (a plan of another shape).
  /// Complexity: O(routed ids + misses * the policy's victim cost).
  status plan(const routing_view& view, visit_plan& plan) noexcept {
    if (is_open()) return status::plan_open;
    if (next_group_ != 0) return status::visit_unfinished;
    if (const auto bad = visit_.check(view, plan); bad != status::ok) return bad;
    if (eviction_hears_routes_) tell_routed(hot_.eviction, view);
    if (admission_hears_routes_) tell_admission_routed(hot_.admission, view);
    visit_.begin(view, hot_.held, plan);
    const auto* left = &view;
    if constexpr (!Miss::traits.fetches_all) left = &decisions_.decide(hot_, visit_, view, plan);
    if (!visit_.misses().empty())
      if (const auto failed = serve_misses(*left, plan); failed != status::ok) return failed;
    open(plan);
    return status::ok;
  }

  /// Plans the next group of the split visit that `plan` holds. Pre: the group before was committed and its slots are
  /// unpinned; then there is room, for speculation takes none of it while groups are left.
  /// After an error or an abort the same group may be planned again.
  /// Errors: no_plan (`plan` holds no visit with groups left: it had its last, it was abandoned, or it was used for
  /// something else), plan_open, invalid_argument (a plan of another shape), no_victim (more was pinned since).
  status plan_next(visit_plan& plan) noexcept {
    if (is_open()) return status::plan_open;
    if (next_group_ == 0) return status::no_plan;
    if (plan.capacity() != visit_.capacity()) return status::invalid_argument;
    if (!is_unfinished(plan)) return status::no_plan;
    if (const auto failed = plan_group(next_group_, plan); failed != status::ok) return failed;
    open(plan);
    return status::ok;
  }

  /// True if the visit that `plan` holds has groups left.
  [[nodiscard]] bool is_unfinished(const visit_plan& plan) const noexcept {
    return next_group_ != 0 && detail::draft_of(plan).serial == group_serial_;
  }
  /// Abandons the groups that are left of a split visit. Changes of its committed groups stay. Pre: no plan is open.
  void abandon() noexcept {
    HOTSET_ASSERT(!is_open());
    next_group_ = 0;
  }

  /// A whole visit without bytes: plans and commits it, and calls use(group) for each group, in order. `use` returns
  /// nothing, or a status; any but ok ends the visit, and so does what it throws: groups that are left are abandoned.
  /// Errors: those of plan and plan_next, and what `use` returned.
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

  /// Publishes a plan, then tells the policies.
  status commit(visit_plan& plan) noexcept {
    if (!is_open(plan)) return status::no_plan;
    close();
    auto& draft = detail::draft_of(plan);
    if (draft.speculative) {
      speculation::commit(hot_, plan);
      return status::ok;
    }
    if constexpr (!Miss::traits.fetches_all) decisions_.settle(hot_.ledger, plan);
    commits_.run(hot_, visit_, plan);
    if (!hot_.admits_all()) admission_round::tell(hot_, visit_, plan);
    if (plan.groups() != 1) {
      visit_.count(plan);
      next_group_ = plan.more() ? plan.group() + 1 : 0;
      group_serial_ = draft.serial;
    }
    return status::ok;
  }

  /// Undoes a plan. `submitted[i]` is 1 if the copy of fill i may have started: its slot is then left free and
  /// both keys absent, for the old bytes are gone. Other fills give their victim back, as it was: the end of its own
  /// copy still counts. Empty: none submitted.
  status abort(visit_plan& plan, std::span<const std::uint8_t> submitted = {}) noexcept {
    if (!is_open(plan)) return status::no_plan;
    const auto fills = plan.fills();
    if (!submitted.empty() && submitted.size() != fills.size()) return status::invalid_argument;
    close();
    if (plan.groups() != 1) group_serial_ = detail::draft_of(plan).serial;
    for (auto i = fills.size(); i-- > 0;) {
      const bool started = !submitted.empty() && submitted[i] != 0;
      started ? hot_.spoil_slot(fills[i]) : hot_.return_slot(fills[i]);
    }
    return status::ok;
  }

  // --- prefetch

  /// Plans speculative fills for what a prefetcher asked for, best first, as far as the guard leaves slots.
  /// A request for a resident key only tells the policy. `context` is the running visit's. Commit or abort it.
  /// At most `most_fills` copies are planned; `plan.deferred()` names the requests that got none. While a split visit
  /// has groups left, no request gets a slot of its pools.
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
  /// Of an open speculative plan, only the first `count` copies are to be made; the others' victims come back.
  void keep_first(visit_plan& plan, std::size_t count) noexcept {
    if (is_open(plan) && detail::draft_of(plan).speculative)
      speculation::keep_first(hot_, plan, count);
  }
  /// What the engine's router is expected to choose after this visit, for the `predicted` guard and for policies that hear
  /// of it. Shape: [tokens * depth * experts] of the next layers. Complexity: O(tokens * depth * experts).
  void expect(const visit_context& context, const forecast& expected) noexcept {
    tell_forecast(hot_.eviction, context, expected);
    speculation_.expect(context, expected);
  }
  /// A step begins: policies that go by requests hear of its tokens. Pre: view.layer == before_layers.
  void open_step(const routing_view& view) noexcept { tell_routed(hot_.eviction, view); }

  /// How many keys `plan_warm` dealt with.
  struct [[nodiscard]] warm_result {
    status code;
    std::size_t consumed;
  };
  /// Plans fills of `keys` into free slots, the last one as most recent. Call again with the rest until 0 are consumed.
  /// Errors: plan_open, visit_unfinished (the free slots are that visit's), invalid_argument.
  warm_result plan_warm(std::span<const expert_key> keys, visit_plan& plan) noexcept {
    if (next_group_ != 0) return {status::visit_unfinished, 0};
    return speculate({}, speculation_.start_with(keys), {.evicts = false}, plan);
  }

  // --- what becomes of copies

  /// A speculative copy has arrived: its key may be read. Ignored if the slot was reused since.
  void arrived(slot_id slot, std::uint32_t generation) noexcept {
    if (hot_.held.awaits(slot, generation)) hot_.held.arrive(slot);
  }
  /// A speculative copy was taken back before a byte of it moved: its slot becomes free. A plan may be open, of a
  /// visit that does not use it. Ignored if the slot was reused since.
  void cancelled(slot_id slot, std::uint32_t generation) noexcept {
    if (!hot_.held.awaits(slot, generation)) return;
    if (hot_.held.settle_prefetch(slot)) {
      ++hot_.ledger.totals.cancelled_prefetches;
      hot_.ledger.totals.bytes_prefetch_cancelled += hot_.held.bytes_in(slot);
    }
    hot_.release(slot, loss::taken_back);
  }
  /// A copy will never arrive: the slot becomes free and no row names it. Ignored if the slot was reused since. A plan
  /// may be open, of a visit that does not use the key; if it has reserved the slot, the key does not come back.
  void failed(slot_id slot, std::uint32_t generation) noexcept {
    const auto& entry = hot_.held[slot];
    if (entry.generation != generation || entry.state == slot_state::free) return;
    ++hot_.ledger.totals.failed_fills;
    hot_.held.drop_pins(slot);
    if (locate(entry.key) == slot) return hot_.release(slot);
    hot_.held.lose_victim(slot);  // the end of the plan that has reserved the slot does the rest
  }

  /// Keeps what a slot holds from being evicted while an engine reads it. Returns what ends that, and nothing else.
  slot_pin pin(slot_id slot) noexcept { return hot_.held.pin(slot); }
  /// Ends one pin. `reader` names the point after which the slot's bytes are no longer read. Ignored if something else
  /// has come into the slot since, for then the pinned copy had failed.
  void unpin(slot_pin pinned, ticket reader = no_ticket) noexcept {
    hot_.held.unpin(pinned, reader);
  }
  /// Copies planned into the slot from now on start no earlier than `point`.
  void wait_before_fill(slot_id slot, ticket point) noexcept {
    hot_.held.wait_before_fill(slot, point);
  }

  // --- what is given up at once

  /// Evicts in policy order until the pool's experts take at most `bytes`, never touching `protected_slots`.
  /// Returns the number evicted; stops early when nothing more may be evicted.
  std::size_t trim(const visit_context& context, std::uint64_t bytes,
                   std::span<const slot_id> protected_slots) noexcept {
    if (is_open()) return 0;
    return hot_.evict_while(
        context, protected_slots, hot_.most_at_once,
        [&] { return resident_bytes(context.pool) > bytes; },
        [&](slot_id slot) { hot_.release(slot); });
  }
  /// Evicts in policy order, ahead of a visit of the context's layer, until so many slots of the context's pool are free,
  /// those that are free already included; never touches `spared`. Calls released(slot, key) when a slot is free.
  /// Copies take the slots that were released first before the others. Returns the number evicted; stops early when
  /// nothing more may be evicted.
  template <class Released>
  std::size_t pre_evict(const visit_context& context, std::size_t slots,
                        std::span<const slot_id> spared, Released released) noexcept {
    if (is_open()) return 0;
    return hot_.evict_while(
        context, spared, hot_.most_at_once, [&] { return free_slots(context.pool) < slots; },
        [&](slot_id slot) {
          const auto key = hot_.held[slot].key;
          hot_.forget(slot);
          hot_.held.give_back_last(slot);
          hot_.ledger.pre_evicted(key, context.step);
          released(slot, key);
        });
  }
  [[nodiscard]] std::size_t free_slots(pool_id pool) const noexcept {
    return hot_.held.free_count(pool);
  }

  /// Forgets a key, because its host bytes change or go away.
  /// Errors: invalid_argument, plan_open, busy (a visit reads it, or a copy is on its way: drain first).
  status invalidate(expert_key key) noexcept {
    if (!shape().contains(key)) return status::invalid_argument;
    if (is_open()) return status::plan_open;
    return hot_.release_all(located(key.layer).subspan(index_of(key.expert), 1));
  }
  /// Forgets a whole layer, or on any error nothing of it.
  status invalidate(layer_id layer) noexcept {
    if (!is_within(layer, shape().layers)) return status::invalid_argument;
    return is_open() ? status::plan_open : hot_.release_all(located(layer));
  }

  /// Changes how many slots the pool of a layer may use. Shrinking evicts in policy order and leaves the slots
  /// spare within their size class; growing takes from the spare ones. On any error nothing has changed.
  /// Errors: invalid_argument (below least_quota, above the pool's experts), busy, exceeds_memory, plan_open,
  /// visit_unfinished.
  status set_quota(layer_id layer, std::int32_t slots) noexcept {
    if (!is_within(layer, shape().layers)) return status::invalid_argument;
    if (is_open()) return status::plan_open;
    if (next_group_ != 0) return status::visit_unfinished;
    const auto pool = layout().pool_of_layer(layer);
    const auto most = layout().at(pool).layers.size() * shape().expert_count();
    if (slots < least_quota(layer) || static_cast<std::size_t>(slots) > most)
      return status::invalid_argument;
    if (slots >= quota(layer)) return hot_.held.claim(pool, slots);
    return hot_.shrink({.layer = layer, .pool = pool, .step = hot_.ledger.step()}, slots);
  }
  /// The fewest slots with which the layer's pools can still serve a token. With several precisions a quota is that
  /// of the highest one, and the others count.
  [[nodiscard]] std::int32_t least_quota(layer_id layer) const noexcept {
    auto slots = shape().top_k;
    for (std::size_t p = 1; p < layout().precisions(); ++p)
      slots -= hot_.held.pool(layout().pool_of(layer, static_cast<precision_id>(p))).capacity;
    return std::max(slots, 1);
  }
  [[nodiscard]] std::int32_t quota(layer_id layer) const noexcept {
    return hot_.held.pool(layout().pool_of_layer(layer)).capacity;
  }

  /// True if no plan is open, no slot is pinned, and no copy is on its way: slots may be moved.
  [[nodiscard]] bool is_idle() const noexcept {
    return !is_open() && next_group_ == 0 && hot_.held.filling() == 0 && !hot_.held.is_any_pinned();
  }
  /// Gathers what is resident in the first slots of each size class: afterwards the slots that no quota claims are the
  /// class's last ones. Calls moved(from, to) for each expert whose bytes must follow; the bytes at `to` are not needed.
  /// The policy hears of each move: it keeps its order and its counts.
  /// Pre: is_idle(). Complexity: O(slots * size classes); not for the hot path.
  template <class Moved>
  void compact(Moved moved) {
    HOTSET_ASSERT(is_idle());
    hot_.held.gather_spare([&](slot_id from, slot_id to) {
      hot_.requests.move(from, to);
      hot_.eviction.on_move(from, to);
      moved(from, to);
    });
  }

  /// Resident keys in the order in which the policy would give them up, pool by pool: what to save so that a
  /// restart with plan_warm continues alike. Pinned and filling slots are left out: drain first.
  /// Allocates; not for the hot path.
  [[nodiscard]] std::vector<expert_key> residents() {
    std::vector<expert_key> keys;
    std::vector<slot_id> order(layout().slots());
    for (const auto p : each<pool_id>(layout().pools())) {
      const visit_context context{
          .layer = layout().at(p).layers.front(), .pool = p, .step = hot_.ledger.step()};
      const auto count = hot_.eviction.select_victims(context, hot_.held.evictable(), order);
      for (const auto slot : std::span(order).first(count)) keys.push_back(hot_.held[slot].key);
    }
    return keys;
  }

  // --- what is where

  /// Shape: [experts]. Slot of every expert whose bytes may be read, -1 for the others.
  [[nodiscard]] std::span<const slot_id> row(layer_id layer) const noexcept {
    return hot_.held.map().row(layer);
  }
  /// Changes when the row does; of a row that never changed it is 0.
  [[nodiscard]] std::uint64_t row_version(layer_id layer) const noexcept {
    return hot_.held.map().version(layer);
  }
  [[nodiscard]] slot_id locate(expert_key key) const noexcept {
    return hot_.held.map().locate(key);
  }
  /// Shape: [experts]. `row` with the slots of copies that are still on their way.
  [[nodiscard]] std::span<const slot_id> located(layer_id layer) const noexcept {
    return hot_.held.map().located(layer);
  }
  [[nodiscard]] const slot_entry& slot(slot_id s) const noexcept { return hot_.held[s]; }
  [[nodiscard]] precision_id precision_of(slot_id slot) const noexcept {
    return hot_.held.precision_of(slot);
  }
  [[nodiscard]] std::uint64_t resident_bytes(pool_id pool) const noexcept {
    return hot_.held.pool(pool).resident_bytes;
  }

  /// Complexity: O(layers). Allocates; not for the hot path.
  [[nodiscard]] pager_stats stats() const { return hot_.ledger.stats(); }
  [[nodiscard]] const pool_layout& layout() const noexcept { return hot_.held.layout(); }
  [[nodiscard]] const geometry& shape() const noexcept { return hot_.held.shape(); }
  [[nodiscard]] const Eviction& eviction() const noexcept { return hot_.eviction; }
  [[nodiscard]] const Admission& admission() const noexcept { return hot_.admission; }
  [[nodiscard]] const Miss& misses() const noexcept { return decisions_.policy(); }
  /// A running hash of every fill and eviction: two pagers that decided alike agree.
  [[nodiscard]] std::uint64_t decision_hash() const noexcept { return hot_.held.hash(); }
  /// A pool that is smaller than one token's cycle, in words; or nothing.
  [[nodiscard]] std::optional<std::string> warning() const { return cliff_warning(layout()); }
  /// What becomes of visits that do not fit.
  [[nodiscard]] visit_split splitting() const noexcept { return visit_.groups().how(); }
  /// False if the miss policy may change what is computed, if visits are split by expert, or if there are several
  /// precisions: a miss goes down in precision where room runs out.
  [[nodiscard]] bool is_exact() const noexcept {
    return facts_of(misses()).is_exact && visit_.groups().how() != visit_split::by_expert &&
           layout().precisions() == 1;
  }

 private:
  /// Whatever ends `serve`, no group is left.
  struct abandoning {
    pager& pages;
    const visit_plan& plan;
    ~abandoning() {
      if (pages.is_unfinished(plan)) pages.next_group_ = 0;
    }
  };
  struct checked {};
  pager(checked, const config& setup)
      : hot_(setup.layout, setup.eviction, setup.admission, setup.departures),
        visit_(setup.layout.shape(), setup.split, facts_of(hot_.eviction).needs_weights,
               setup.refuse_unknown_ids),
        commits_(setup.layout.shape(), setup.layout.slots()),
        admission_(hot_.admits_all() ? 0 : visit_.capacity()),
        decisions_(setup.layout, setup.miss, visit_),
        speculation_(setup.layout.shape(), setup.guard, visit_.capacity()),
        eviction_hears_routes_(facts_of(hot_.eviction).hears_routes),
        admission_hears_routes_(facts_of(hot_.admission).hears_routes) {}

  // Odd while a plan is open: then its number.
  [[nodiscard]] bool is_open() const noexcept { return serial_ % 2 != 0; }
  [[nodiscard]] bool is_open(const visit_plan& plan) const noexcept {
    return is_open() && detail::draft_of(plan).serial == serial_;
  }
  void open(visit_plan& plan) noexcept { detail::draft_of(plan).serial = ++serial_; }
  void close() noexcept { ++serial_; }

  /// Out of line so that the all-hit path spills no registers.
  [[gnu::noinline]] HOTSET_FLATTEN status serve_misses(const routing_view& view,
                                                       visit_plan& plan) noexcept {
    if (!detail::draft_of(plan).judged) hot_.ledger.judge(plan, visit_.misses());
    admission_.refuse(hot_, visit_, plan);
    const auto placed = decisions_.place(hot_, visit_, plan);
    return placed.fits ? status::ok : split(view, plan, placed);
  }
  [[gnu::cold]] status split(const routing_view& view, visit_plan& plan,
                             placement placed) noexcept {
    const auto how = visit_.groups().how();
    if (how == visit_split::refuse) return status::does_not_fit;
    if (how == visit_split::leave_rest) return leave_rest(view, plan, placed);
    const auto divided = visit_.divide(view, hot_.held, plan, placed.room);
    return divided == status::ok ? plan_group(0, plan) : divided;
  }
  status leave_rest(const routing_view& view, visit_plan& plan, placement placed) noexcept {
    while (!placed.fits) {
      visit_.leave_least_used(view, hot_.held, placed.room, plan);
      hot_.ledger.visit.bypasses = plan.host_count();
      if (visit_.misses().empty()) break;
      placed = decisions_.place(hot_, visit_, plan);
    }
    return status::ok;
  }
  [[gnu::noinline]] status plan_group(std::size_t group, visit_plan& plan) noexcept {
    visit_.begin_group(group, hot_.held, plan);
    return decisions_.place(hot_, visit_, plan).fits ? status::ok : status::no_victim;
  }
  warm_result speculate(const visit_context& context, std::span<const prefetch_request> requests,
                        const speculation::terms& how, visit_plan& plan) noexcept {
    if (is_open()) return {status::plan_open, 0};
    if (plan.capacity() != visit_.capacity()) return {status::invalid_argument, 0};
    const auto consumed = speculation_.plan(hot_, context, requests, how, plan);
    open(plan);
    return {status::ok, consumed};
  }

  hot_set<Eviction, Admission> hot_;
  visit_lookup visit_;
  visit_commit commits_;
  admission_round admission_;
  miss_decisions<Miss> decisions_;
  speculation speculation_;
  bool eviction_hears_routes_;
  bool admission_hears_routes_;
  std::uint64_t serial_ = 0;  ///< rises when a plan is opened, and when it is committed or aborted
  std::size_t next_group_ = 0;      ///< 0: no split visit is under way
  std::uint64_t group_serial_ = 0;  ///< of the plan that holds it
};

}  // namespace hotset
