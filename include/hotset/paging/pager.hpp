// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Decides, visit by visit, which experts get a slot and which slots are given up. It moves no bytes.
///
/// Every visit is event-atomic: distinct experts are judged against residency as it was before the visit, the
/// whole visit is protected before a victim is chosen, and policies are told afterwards, in routed order.
///
/// Life of a visit: `plan` decides and reserves; `commit` publishes and tells the policies; `abort` undoes.
/// A visit whose experts do not fit is split: commit each group, then `plan_next` until `!plan.more()`. `serve` does all that.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hotset/admission/always.hpp"
#include "hotset/concepts/admission_policy.hpp"
#include "hotset/concepts/eviction_policy.hpp"
#include "hotset/concepts/miss_policy.hpp"
#include "hotset/core/miss.hpp"
#include "hotset/core/multiples_of.hpp"
#include "hotset/core/prefetch_request.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/core/status.hpp"
#include "hotset/miss/fetch.hpp"
#include "hotset/paging/cliff_guard.hpp"
#include "hotset/paging/pager_stats.hpp"
#include "hotset/paging/visit_ledger.hpp"
#include "hotset/residency/expected_uses.hpp"
#include "hotset/residency/free_slots.hpp"
#include "hotset/residency/prefetch_requests.hpp"
#include "hotset/residency/slot_map.hpp"
#include "hotset/residency/slot_table.hpp"
#include "hotset/residency/step_plan.hpp"
#include "hotset/residency/unique_ids.hpp"
#include "hotset/residency/visit_group.hpp"
#include "hotset/residency/visit_groups.hpp"

namespace hotset::inline v0 {

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
  };

  /// Errors: the first parameter that cannot work, with its accepted range.
  static result<pager> create(config setup) {
    if (setup.layout.pools() == 0)
      return error{"the pool layout is empty, accepted: one made by pool_layout"};
    if (auto bad = setup.eviction.validate()) return *std::move(bad);
    if (auto bad = setup.admission.validate()) return *std::move(bad);
    if (auto bad = check_miss_policy(setup)) return *std::move(bad);
    return pager(checked{}, std::move(setup));
  }
#if HOTSET_EXCEPTIONS
  /// Errors: throws invalid_config.
  explicit pager(config setup) : pager(create(std::move(setup)).value()) {}
#endif

  [[nodiscard]] step_plan make_plan() const { return step_plan(shape()); }

  /// Decides a visit. On any status but ok nothing has changed.
  /// Pre: the weights of `view` stay valid until the commit, with a split visit all arrays until its last group's.
  /// Errors: invalid_visit, visit_too_large, no_victim, plan_open, visit_unfinished (the last visit has groups left),
  /// invalid_argument (a plan of another shape).
  /// Complexity: O(routed ids + misses * the policy's victim cost).
  status plan(const routing_view& view, step_plan& plan) noexcept {
    if (is_open()) return status::plan_open;
    if (next_group_ != 0) return status::visit_unfinished;
    if (const auto bad = check(view, plan); bad != status::ok) return bad;
    begin(view, plan);
    look_up(view.experts, view.weights, plan);
    plan.count_.ignored = unique_.ignored();
    if constexpr (Miss::fetches_all) {
      if (miss_count_ != 0) {
        ledger_.judge(plan, std::span(misses_).first(miss_count_));
        if (const auto failed = serve_misses(view, plan); failed != status::ok) return failed;
      }
    } else {
      if (const auto failed = decide_misses(view, plan); failed != status::ok) return failed;
    }
    open(plan);
    return status::ok;
  }

  /// Plans the next group of the split visit that `plan` holds. Pre: the group before was committed and its slots are
  /// unpinned; then there is room, for speculation takes none of it while groups are left.
  /// After an error or an abort the same group may be planned again.
  /// Errors: no_plan (`plan` holds no visit with groups left: it had its last, it was abandoned, or it was used for
  /// something else), plan_open, invalid_argument (a plan of another shape), no_victim (more was pinned since).
  status plan_next(step_plan& plan) noexcept {
    if (is_open()) return status::plan_open;
    if (next_group_ == 0) return status::no_plan;
    if (plan.capacity() != capacity_) return status::invalid_argument;
    if (!is_unfinished(plan)) return status::no_plan;
    if (const auto failed = plan_group(next_group_, plan); failed != status::ok) return failed;
    open(plan);
    return status::ok;
  }

  /// True if the visit that `plan` holds has groups left.
  [[nodiscard]] bool is_unfinished(const step_plan& plan) const noexcept {
    return next_group_ != 0 && plan.serial_ == group_serial_;
  }
  /// Gives up the groups that are left of a split visit, whoever's it is. What its other groups have changed stays.
  /// Pre: no plan is open.
  void abandon() noexcept {
    HOTSET_ASSERT(!is_open());
    next_group_ = 0;
  }

  /// A whole visit without bytes: plans and commits it, and calls use(group) for each group, in order. `use` returns
  /// nothing, or a status; any but ok ends the visit, and so does what it throws: groups that are left are abandoned.
  /// Errors: those of plan and plan_next, and what `use` returned.
  template <class Use>
  status serve(const routing_view& view, step_plan& plan, Use&& use) {
    if (is_unfinished(plan)) return status::visit_unfinished;
    const abandoning end{*this, plan};
    auto now = this->plan(view, plan);
    while (now == status::ok) {
      (void)commit(plan);
      now = detail::shown(use, visit_group(plan, row(view.layer)));
      if (now != status::ok || !plan.more()) break;
      now = plan_next(plan);
    }
    return now;
  }

  /// Publishes a plan, then tells the policies of each distinct expert in routed order.
  status commit(step_plan& plan) noexcept {
    if (!is_open(plan)) return status::no_plan;
    close();
    if (plan.speculative_) {
      commit_speculative(plan);
      return status::ok;
    }
    ledger_.commit(plan);
    if constexpr (!Miss::fetches_all) settle_decisions(plan);
    policy_.on_step(plan.context_.step, plan.context_.layer);
    const bool at_once = takes_visits_ && is_plain(plan);
    if (plan.count_.fills != 0) place_fills(plan, at_once);
    if (speculating()) {
      use_prefetched(plan);
      requests_.settle(plan.context_.step,
                       [&](slot_id slot) { return table_[slot].key.layer == plan.context_.layer; });
    }
    if (!at_once)
      notify(plan);
    else if constexpr (detail::told_of_visits<Eviction>)
      policy_.on_visit(plan.context_, plan.slots());
    if (plan.count_.groups != 1) {
      next_group_ = plan.more() ? plan.count_.group + 1 : 0;
      group_serial_ = plan.serial_;
    }
    return status::ok;
  }

  /// Undoes a plan. `submitted[i]` is 1 if the copy of fill i may have started: its slot is then left free and
  /// both keys absent, for the old bytes are gone. Other fills give their victim back, as it was: the end of its own
  /// copy still counts. Empty: none submitted.
  status abort(step_plan& plan, std::span<const std::uint8_t> submitted = {}) noexcept {
    if (!is_open(plan)) return status::no_plan;
    if (!submitted.empty() && submitted.size() != plan.count_.fills)
      return status::invalid_argument;
    close();
    if (plan.count_.groups != 1) group_serial_ = plan.serial_;
    for (auto i = plan.count_.fills; i-- > 0;) {
      const auto& f = plan.fills_[i];
      const bool started = !submitted.empty() && submitted[i] != 0;
      ledger_.totals.failed_fills += started ? 1U : 0U;
      started ? give_up_slot(f) : return_slot(f);
    }
    return status::ok;
  }

  /// Plans speculative fills for what a prefetcher asked for, best first, as far as the guard leaves slots.
  /// A request for a resident key only tells the policy. `context` is the running visit's. Commit or abort it.
  /// At most `most_fills` copies are planned; `plan.deferred()` names the requests that got none. While a split visit
  /// has groups left, no request gets a slot of its pools.
  status plan_prefetch(const visit_context& context, std::span<const prefetch_request> requests,
                       step_plan& plan,
                       std::size_t most_fills = std::numeric_limits<std::size_t>::max()) noexcept {
    return speculate(context, requests, plan, speculation::guarded, most_fills).code;
  }
  /// Of an open speculative plan, only the first `count` copies are to be made; the others' victims come back.
  void keep_first(step_plan& plan, std::size_t count) noexcept {
    if (!is_open(plan) || !plan.speculative_) return;
    while (plan.count_.fills > count) {
      const auto& f = plan.fills_[--plan.count_.fills];
      plan.deferred_[plan.count_.deferred++] = plan.request_of_[plan.count_.fills];
      return_slot(f);
    }
    std::sort(plan.deferred_.begin(), plan.deferred_.begin() + plan.count_.deferred);
  }
  /// What the engine's router is expected to choose after this visit, for the `predicted` guard.
  /// Shape: [tokens * depth * experts] of the next layers. Complexity: O(tokens * depth * experts).
  void expect(const visit_context& context, const forecast& expected) noexcept {
    if (guard_ == prefetch_guard::predicted) expected_.take(context, expected);
  }

  /// Plans fills of `keys` into free slots only, in this order (the last one is the most recent).
  /// Returns how many keys were dealt with; call again with the rest while that is not zero.
  /// Errors: plan_open, visit_unfinished (the free slots are that visit's), invalid_argument.
  struct warm_result {
    status code;
    std::size_t consumed;
  };
  warm_result plan_warm(std::span<const expert_key> keys, step_plan& plan) noexcept {
    if (next_group_ != 0) return {status::visit_unfinished, 0};
    warm_requests_.clear();
    const auto count = std::min(keys.size(), warm_requests_.capacity());
    for (std::size_t i = 0; i < count; ++i) warm_requests_.push_back({keys[i], 0, 1.0F});
    return speculate({}, warm_requests_, plan, speculation::warm_start,
                     std::numeric_limits<std::size_t>::max());
  }

  /// A speculative copy has arrived: its key may be read. Ignored if the slot was reused since.
  void arrived(slot_id slot, std::uint32_t generation) noexcept {
    auto& entry = table_[slot];
    if (entry.generation != generation || entry.state != slot_state::filling) return;
    entry.state = slot_state::resident;
    --pools_[index(pool_of(slot, entry.key.layer))].filling;
    --filling_;
    map_.publish(entry.key);
    refresh_evictable(slot);
  }

  /// A speculative copy was taken back before a byte of it moved: its slot becomes free. A plan may be open, of a
  /// visit that does not use it.
  /// Ignored if the slot was reused since.
  void cancelled(slot_id slot, std::uint32_t generation) noexcept {
    auto& entry = table_[slot];
    if (entry.generation != generation || entry.state != slot_state::filling) return;
    if (entry.unused_prefetch) {
      ledger_.cancelled(bytes_in(slot));
      --unused_prefetches_;
      entry.unused_prefetch = false;
    }
    release(slot, loss::taken_back);
  }
  /// A copy will never arrive: the slot becomes free and no row names it. Ignored if the slot was reused since. A plan
  /// may be open, of a visit that does not use the key; if it has reserved the slot, nobody gets the key back.
  void failed(slot_id slot, std::uint32_t generation) noexcept {
    auto& entry = table_[slot];
    if (entry.generation != generation || entry.state == slot_state::free) return;
    ++ledger_.totals.failed_fills;
    entry.pins = 0;
    if (map_.locate(entry.key) == slot) return release(slot);
    entry.state = slot_state::free;  // the plan's end does the rest
    refresh_evictable(slot);
  }

  /// Keeps what a slot holds from being evicted while an engine reads it. Returns what ends that, and nothing else.
  slot_pin pin(slot_id slot) noexcept {
    auto& entry = table_[slot];
    ++entry.pins;
    refresh_evictable(slot);
    return {slot, entry.generation};
  }
  /// Ends one pin. `reader` names the point after which the slot's bytes are no longer read. Ignored if something else
  /// has come into the slot since, for then the pinned copy had failed.
  void unpin(slot_pin pinned, ticket reader = no_ticket) noexcept {
    auto& entry = table_[pinned.slot];
    if (entry.generation != pinned.generation) return;
    if (reader != no_ticket) entry.last_reader = reader;
    if (entry.pins == 0) return;
    --entry.pins;
    refresh_evictable(pinned.slot);
  }

  /// Copies planned into the slot from now on start no earlier than `point`.
  void wait_before_fill(slot_id slot, ticket point) noexcept { table_[slot].last_reader = point; }

  /// Evicts in policy order until the pool's experts take at most `bytes`, never touching `protected_slots`.
  /// Returns the number evicted; stops early when nothing more may be evicted.
  std::size_t trim(const visit_context& context, std::uint64_t bytes,
                   std::span<const slot_id> protected_slots) noexcept {
    if (is_open()) return 0;
    const auto& pool = pools_[index(context.pool)];
    std::size_t evicted = 0;
    if (pool.resident_bytes <= bytes) return 0;
    mask(protected_slots);
    while (pool.resident_bytes > bytes) {
      const auto chunk =
          std::span(victims_).first(std::min<std::size_t>(trim_chunk, victims_.size()));
      const auto count = policy_.select_victims(context, evictable_, chunk);
      for (std::size_t i = 0; i < count && pool.resident_bytes > bytes; ++i, ++evicted)
        release(chunk[i]);
      if (count == 0) break;
    }
    unmask();
    return evicted;
  }

  /// Forgets a key, because its host bytes change or go away.
  /// Errors: invalid_argument, plan_open, busy (a visit reads it, or a copy is on its way: drain first).
  status invalidate(expert_key key) noexcept {
    if (!shape().contains(key)) return status::invalid_argument;
    if (is_open()) return status::plan_open;
    const auto slot = map_.locate(key);
    if (slot == no_slot) return status::ok;
    if (!table_.evictable(slot)) return status::busy;
    release(slot);
    return status::ok;
  }
  /// Forgets a whole layer, or on any error nothing of it.
  status invalidate(layer_id layer) noexcept {
    if (layer < 0 || layer >= shape().layers) return status::invalid_argument;
    if (is_open()) return status::plan_open;
    for (expert_id e = 0; e < shape().experts; ++e)
      if (const auto slot = map_.locate({layer, e}); slot != no_slot && !table_.evictable(slot))
        return status::busy;
    for (expert_id e = 0; e < shape().experts; ++e)
      if (const auto slot = map_.locate({layer, e}); slot != no_slot) release(slot);
    return status::ok;
  }

  /// Changes how many slots the pool of a layer may use. Shrinking evicts in policy order and leaves the slots
  /// spare within their size class; growing takes from the spare ones. On any error nothing has changed.
  /// Errors: invalid_argument (below least_quota, above the pool's experts), busy, exceeds_memory, plan_open,
  /// visit_unfinished.
  status set_quota(layer_id layer, std::int32_t slots) noexcept {
    if (layer < 0 || layer >= shape().layers) return status::invalid_argument;
    const auto p = layout_.pool_of_layer(layer);
    if (slots < least_quota(layer) ||
        static_cast<std::size_t>(slots) > layout_.at(p).layers.size() * index(shape().experts))
      return status::invalid_argument;
    if (is_open()) return status::plan_open;
    if (next_group_ != 0) return status::visit_unfinished;
    return slots < pools_[index(p)].capacity ? shrink(p, layer, slots) : grow(p, slots);
  }
  /// The fewest slots with which the layer's pools can still serve a token. With several precisions a quota is that
  /// of the highest one, and the others count.
  [[nodiscard]] std::int32_t least_quota(layer_id layer) const noexcept {
    auto least = shape().top_k;
    for (std::size_t p = 1; p < layout_.precisions(); ++p)
      least -= pools_[index(layout_.pool_of(layer, static_cast<precision_id>(p)))].capacity;
    return std::max(least, 1);
  }
  [[nodiscard]] std::int32_t quota(layer_id layer) const noexcept {
    return pools_[index(layout_.pool_of_layer(layer))].capacity;
  }

  /// True if no plan is open, no slot is pinned, and no copy is on its way: slots may be moved.
  [[nodiscard]] bool is_idle() const noexcept {
    if (is_open() || next_group_ != 0 || filling_ != 0) return false;
    for (std::size_t s = 0; s < table_.slots(); ++s)
      if (table_[static_cast<slot_id>(s)].pins != 0) return false;
    return true;
  }
  /// Gathers what is resident in the first slots of each size class: afterwards the slots that no quota claims are the
  /// class's last ones. Calls moved(from, to) for each expert whose bytes must follow; nobody needs the bytes at `to`.
  /// The policy is told that a pool that changed was emptied and filled anew, in the order in which it would have given
  /// its experts up: it keeps that order, and counts of residents begin anew.
  /// Pre: is_idle(). Complexity: O(slots) and the policy's order of all of them; not for the hot path.
  template <class Moved>
  void compact(Moved moved) {
    HOTSET_ASSERT(is_idle());
    std::ranges::fill(target_, no_slot);
    for (std::size_t c = 0; c < spare_.size(); ++c) gather_spare(static_cast<size_class_id>(c));
    free_.renumber(target_);
    for (std::size_t p = 0; p < pools_.size(); ++p) move_pool(static_cast<pool_id>(p), moved);
  }

  /// Resident keys in the order in which the policy would give them up, pool by pool: what to save so that a
  /// restart with plan_warm continues alike. Pinned and filling slots are left out: drain first.
  /// Allocates; not for the hot path.
  [[nodiscard]] std::vector<expert_key> residents() {
    std::vector<expert_key> keys;
    for (std::size_t p = 0; p < pools_.size(); ++p) {
      order_residents(static_cast<pool_id>(p));
      for (const auto slot : order_) keys.push_back(table_[slot].key);
    }
    return keys;
  }

  /// Shape: [experts]. Slot of every expert whose bytes may be read, -1 for the others.
  [[nodiscard]] std::span<const slot_id> row(layer_id layer) const noexcept {
    return map_.row(layer);
  }
  /// Changes when the row does; of a row that never changed it is 0.
  [[nodiscard]] std::uint64_t row_version(layer_id layer) const noexcept {
    return map_.version(layer);
  }
  [[nodiscard]] slot_id locate(expert_key key) const noexcept { return map_.locate(key); }
  /// Shape: [experts]. As `row`, with the slots of copies that are still on their way.
  [[nodiscard]] std::span<const slot_id> located(layer_id layer) const noexcept {
    return {map_.located(layer), index(shape().experts)};
  }
  [[nodiscard]] const slot_entry& slot(slot_id s) const noexcept { return table_[s]; }
  /// Complexity: O(layers). Allocates; not for the hot path.
  [[nodiscard]] pager_stats stats() const { return ledger_.stats(); }
  [[nodiscard]] const pool_layout& layout() const noexcept { return layout_; }
  [[nodiscard]] const geometry& shape() const noexcept { return layout_.shape(); }
  [[nodiscard]] std::uint64_t resident_bytes(pool_id pool) const noexcept {
    return pools_[index(pool)].resident_bytes;
  }
  [[nodiscard]] const Eviction& eviction() const noexcept { return policy_; }
  [[nodiscard]] const Miss& misses() const noexcept { return miss_; }
  [[nodiscard]] precision_id precision_of(slot_id slot) const noexcept {
    if constexpr (Miss::fetches_all) return 0;
    return slot_precision_[index(slot)];
  }
  /// A running hash of every fill and eviction: two pagers that decided alike agree.
  [[nodiscard]] std::uint64_t decision_hash() const noexcept { return hash_; }
  /// A pool that is smaller than one token's cycle, in words; or nothing.
  [[nodiscard]] std::optional<std::string> warning() const { return cliff_warning(layout_); }
  /// How visits that do not fit are divided.
  [[nodiscard]] visit_split splitting() const noexcept { return groups_.how(); }
  /// False if the miss policy may change what is computed, if visits are split by expert, or if there are several
  /// precisions: a miss goes down in precision where room runs out.
  [[nodiscard]] bool is_exact() const noexcept {
    if constexpr (requires { miss_.exact(); }) {
      if (!miss_.exact()) return false;
    } else if constexpr (!Miss::is_exact) {
      return false;
    }
    return groups_.how() == visit_split::by_token && layout_.precisions() == 1;
  }

 private:
  static constexpr std::size_t trim_chunk = 16;
  enum class speculation : std::uint8_t { guarded, warm_start };
  enum class loss : std::uint8_t { evicted, taken_back };

  /// Whatever ends `serve`, no group is left.
  struct abandoning {
    pager& pages;
    const step_plan& plan;
    ~abandoning() {
      if (pages.is_unfinished(plan)) pages.next_group_ = 0;
    }
  };

  struct checked {};
  static validation check_miss_policy(const config& setup) {
    const auto& layout = setup.layout;
    if (auto bad = setup.miss.validate()) return bad;
    if (auto bad = setup.miss.validate(layout.shape())) return bad;
    if (Miss::fetches_all && layout.precisions() > 1)
      return error{"a layout of " + std::to_string(layout.precisions()) +
                   " precisions for a policy that fetches everything, accepted: 1"};
    if (!Miss::fetches_all && layout.precisions() != layout.shape().precisions())
      return error{"a layout of " + std::to_string(layout.precisions()) +
                   " precisions for experts of " + std::to_string(layout.shape().precisions()) +
                   ", accepted: pools for each"};
    return std::nullopt;
  }
  struct pool_state {
    std::int32_t capacity = 0;
    std::size_t evictable = 0;
    std::size_t filling = 0;
    std::uint64_t resident_bytes = 0;
  };
  pager(checked, config setup)
      : layout_(std::move(setup.layout)),
        policy_(layout_, setup.eviction),
        admission_(layout_, setup.admission),
        miss_(layout_.shape(), setup.miss),
        takes_visits_(detail::takes_visits(policy_) && layout_.precisions() == 1),
        weigh_(detail::wants_weights(policy_)),
        guard_(setup.guard),
        whole_tokens_(static_cast<std::uint64_t>(shape().top_k)),
        most_ids_(static_cast<std::size_t>(shape().max_tokens_per_visit) *
                  static_cast<std::size_t>(shape().top_k)),
        capacity_(std::min(static_cast<std::size_t>(shape().experts), most_ids_)),
        map_(shape()),
        table_(layout_.slots()),
        free_(layout_),
        evictable_(layout_.slots()),
        bytes_(static_cast<std::size_t>(shape().layers)),
        pools_(layout_.pools()),
        spare_(layout_.pools()),
        unique_(static_cast<std::size_t>(shape().experts), most_ids_),
        groups_(shape(), setup.split),
        requests_(layout_.slots()),
        expected_(setup.guard == prefetch_guard::predicted ? expected_uses(shape())
                                                           : expected_uses()),
        target_(layout_.slots(), no_slot),
        ledger_(shape()) {
    for (layer_id l = 0; l < shape().layers; ++l) bytes_[index(l)] = shape().bytes_of(l);
    misses_.resize(capacity_);
    victims_.resize(std::max(capacity_, std::min(trim_chunk, layout_.slots())));
    masked_.reserve(layout_.slots());
    order_.reserve(layout_.slots());
    if constexpr (!Admission::admits_all) {
      accesses_.resize(capacity_);
      admitted_.resize(capacity_);
    }
    if constexpr (!Miss::fetches_all) make_decision_scratch();
    warm_requests_.reserve(capacity_);
    for (std::size_t p = 0; p < pools_.size(); ++p) {
      pools_[p].capacity = layout_.at(static_cast<pool_id>(p)).slots;
      const auto c = index(layout_.at(static_cast<pool_id>(p)).size_class);
      if (spare_.size() <= c) spare_.resize(c + 1);
    }
    for (std::size_t p = 0; p < pools_.size(); ++p) {
      const auto& pool = layout_.at(static_cast<pool_id>(p));
      auto& spare = spare_[index(pool.size_class)];
      spare.reserve(spare.capacity() + static_cast<std::size_t>(pool.slots));
    }
  }

  void make_decision_scratch() {
    for (std::size_t s = 0; s < layout_.slots(); ++s)
      slot_precision_.push_back(
          layout_.at(layout_.pool_of_slot(static_cast<slot_id>(s))).precision);
    asked_.resize(capacity_);
    decisions_.resize(capacity_);
    routed_ids_.resize(most_ids_);
    left_out_.resize(capacity_);
    wanted_.resize(static_cast<std::size_t>(shape().experts));
    ladder_.resize(layout_.precisions());
    assigned_.resize(capacity_);
    by_weight_.resize(capacity_);
  }

  static std::size_t index(std::int32_t id) noexcept { return static_cast<std::size_t>(id); }
  /// The pool that a slot of this layer's belongs to.
  [[nodiscard]] pool_id pool_of(slot_id slot, layer_id layer) const noexcept {
    if constexpr (Miss::fetches_all) return layout_.pool_of_layer(layer);
    return layout_.pool_of(layer, slot_precision_[index(slot)]);
  }
  /// Bytes of one of the layer's experts in the slot.
  [[nodiscard]] std::uint64_t bytes_in(slot_id slot, layer_id layer) const noexcept {
    if constexpr (Miss::fetches_all) return bytes_[index(layer)];
    return shape().bytes_of(layer, slot_precision_[index(slot)]);
  }
  [[nodiscard]] std::uint64_t bytes_in(slot_id slot) const noexcept {
    return bytes_in(slot, table_[slot].key.layer);
  }

  // What a visit of hits does not need is kept out of line: its way then has registers enough.

  // --- planning -------------------------------------------------------------------------------------------

  status check(const routing_view& view, const step_plan& plan) const noexcept {
    if (view.layer < 0 || view.layer >= shape().layers) return status::invalid_visit;
    if (view.kind > request_class::verify) return status::invalid_visit;
    if (view.experts.size() > most_ids_) return status::visit_too_large;
    if (!whole_tokens_.contains(view.experts.size())) return status::invalid_visit;
    if (!view.weights.empty() && view.weights.size() != view.experts.size())
      return status::invalid_visit;
    if (plan.capacity() != capacity_) return status::invalid_argument;
    return status::ok;
  }
  void begin(const routing_view& view, step_plan& plan) noexcept {
    plan.reset();
    // By members: a copied whole would wait for the stores of its parts.
    auto& context = plan.context_;
    context.layer = view.layer;
    context.pool = layout_.pool_of_layer(view.layer);
    context.step = view.step;
    context.ordinal = view.ordinal;
    context.kind = view.kind;
    plan.routed_ = view.experts;
    plan.tokens_ = groups_.tokens_up_to(whole_tokens_.quotient(view.experts.size()));
  }

  /// Distinct experts, their slots, and which of them miss.
  void look_up(std::span<const expert_id> ids, std::span<const float> weights,
               step_plan& plan) noexcept {
    const slot_id* const row = map_.located(plan.context_.layer);
    expert_id* const experts = plan.experts_.data();
    slot_id* const slots = plan.slots_.data();
    slot_id any_absent = 0;
    const auto count = unique_.collect(ids, [&](std::size_t at, expert_id id) {
      const slot_id slot = row[static_cast<std::uint32_t>(id)];
      experts[at] = id;
      slots[at] = slot;
      any_absent |= slot;
    });
    plan.count_.distinct = count;
    miss_count_ = any_absent < 0 ? find_misses(plan) : 0;
    plan.reordered_ = unique_.repeated();
    if (plan.reordered_) unique_.last_appearance_order(ids, plan.order_.data());
    if constexpr (detail::needs_weights<Eviction>())
      if (weigh_) add_weights(ids, weights, plan);
  }

  std::size_t find_misses(step_plan& plan) noexcept {
    static_assert(static_cast<int>(service::hit) == 0 && static_cast<int>(service::fill) == 1);
    std::uint32_t* const misses = misses_.data();
    const slot_id* const slots = plan.slots_.data();
    service* const services = plan.services_.data();
    const auto distinct = plan.count_.distinct;
    std::size_t missing = 0;
    // No branches: which id misses is anyone's guess.
    for (std::uint32_t i = 0; i < distinct; ++i) {
      const auto absent = static_cast<std::uint32_t>(slots[i]) >> 31U;
      services[i] = static_cast<service>(absent);
      misses[missing] = i;
      missing += absent;
    }
    plan.all_hits_ = false;
    return missing;
  }
  /// Sums of gate weights in routed order and best ranks, for policies that ask.
  void add_weights(std::span<const expert_id> ids, std::span<const float> weights,
                   step_plan& plan) noexcept {
    const auto k = static_cast<std::size_t>(shape().top_k);
    std::fill_n(plan.weights_.begin(), plan.count_.distinct, 0.0);
    std::fill_n(plan.ranks_.begin(), plan.count_.distinct,
                std::numeric_limits<std::uint16_t>::max());
    for (std::size_t i = 0, rank = 0; i < ids.size(); ++i, rank = rank + 1 == k ? 0 : rank + 1) {
      const auto at = unique_.index_of(ids[i]);
      if (at >= plan.count_.distinct) continue;
      if (!weights.empty()) plan.weights_[at] += static_cast<double>(weights[i]);
      plan.ranks_[at] = std::min(plan.ranks_[at], static_cast<std::uint16_t>(rank));
    }
  }

  [[gnu::noinline]] status serve_misses(const routing_view& view, step_plan& plan) noexcept {
    if constexpr (!Admission::admits_all) refuse_misses(plan);
    const auto pool = plan.context_.pool;
    const auto free = free_.count(pool);
    if (miss_count_ <= free) return reserve(plan, 0);
    const auto victims = miss_count_ - free;
    if (choose_unprotected(plan, victims)) return reserve(plan, victims);
    mask(plan.slots());
    const auto room = pools_[index(pool)].evictable - masked_.size() + free;
    const auto served =
        miss_count_ <= room ? choose_victims(plan, victims) : split(view, plan, room);
    unmask();
    if (served != status::ok || plan.count_.groups > 1) return served;
    return reserve(plan, victims);
  }

  /// A policy's order does not depend on what else is eligible: if the first victims of all are not of the visit,
  /// they are the first victims of the rest, and the visit need not be masked.
  bool choose_unprotected(const step_plan& plan, std::size_t count) noexcept {
    if (pools_[index(plan.context_.pool)].evictable < count + plan.count_.distinct) return false;
    const auto chosen =
        policy_.select_victims(plan.context_, evictable_, std::span(victims_).first(count));
    if (chosen != count) return false;
    for (std::size_t v = 0; v < count; ++v) {
      const auto key = table_[victims_[v]].key;
      if (key.layer == plan.context_.layer && unique_.contains(key.expert)) return false;
    }
    return true;
  }

  /// Pre: the visit's slots are masked.
  status choose_victims(const step_plan& plan, std::size_t count) noexcept {
    const auto chosen =
        policy_.select_victims(plan.context_, evictable_, std::span(victims_).first(count));
    HOTSET_ASSERT(chosen == count);
    return chosen == count ? status::ok : status::no_victim;
  }

  /// Gives every miss a slot under a new generation and takes the victims' keys off the map.
  status reserve(step_plan& plan, std::size_t victims) noexcept {
    const auto from_free = miss_count_ - victims;
    for (std::size_t j = 0; j < miss_count_; ++j) {
      const auto at = misses_[j];
      const auto slot = j < from_free ? free_.take(plan.context_.pool) : victims_[j - from_free];
      auto& entry = table_[slot];
      const auto victim = j < from_free ? no_key : entry.key;
      plan.fills_[j] = {.key = {plan.context_.layer, plan.experts_[at]},
                        .slot = slot,
                        .generation = ++entry.reservations,
                        .victim = victim,
                        .precision = 0,
                        .speculative = false,
                        .after = entry.last_reader};
      if (j >= from_free) map_.remove(victim);
      plan.slots_[at] = slot;
    }
    plan.count_.fills = static_cast<std::uint32_t>(miss_count_);
    return status::ok;
  }

  /// Undoes the reservation of a copy that was not started.
  void return_slot(const fill& f) noexcept {
    if (f.victim == no_key) {
      free_.give_back(pool_of(f.slot, f.key.layer), f.slot);
    } else if (table_[f.slot].state == slot_state::free) {
      release(f.slot);  // the victim's own copy failed meanwhile
    } else {
      map_.place_and_publish(f.victim, f.slot);
    }
  }
  /// A copy that may have started was given up: what the slot held is gone, and its pins and tickets with it.
  void give_up_slot(const fill& f) noexcept {
    if (f.victim == no_key)
      free_.give_back(pool_of(f.slot, f.key.layer), f.slot);
    else
      release(f.slot);
    table_[f.slot].generation = f.generation;
  }
  /// From now on the slot is that of the fill's key, and nobody reads it yet.
  static void hand_over(slot_entry& entry, const fill& f) noexcept {
    entry.key = f.key;
    entry.generation = f.generation;
    entry.pins = 0;
  }

  /// Asks the admission policy; refused misses stay on the host.
  void refuse_misses(step_plan& plan) noexcept {
    for (std::size_t j = 0; j < miss_count_; ++j) accesses_[j] = describe_access(plan, misses_[j]);
    admission_.admit(plan.context_, std::span(accesses_).first(miss_count_),
                     std::span(admitted_).first(miss_count_));
    std::size_t kept = 0;
    for (std::size_t j = 0; j < miss_count_; ++j) {
      if (admitted_[j] != 0)
        misses_[kept++] = misses_[j];
      else
        leave_on_host(plan, misses_[j]);
    }
    ledger_.refuse(plan.count_.host);
    miss_count_ = kept;
  }

  void mask(std::span<const slot_id> slots) noexcept {
    masked_.clear();
    for (const auto slot : slots)
      if (slot != no_slot && evictable_.test(slot)) {
        evictable_.reset(slot);
        masked_.push_back(slot);
      }
  }
  void unmask() noexcept { unmask_from(0); }
  void unmask_from(std::size_t first) noexcept {
    for (std::size_t i = first; i < masked_.size(); ++i) evictable_.set(masked_[i]);
    masked_.resize(first);
  }

  // --- visits that do not fit -----------------------------------------------------------------------------

  /// Pre: the visit's slots are masked, `room` slots can be had for what is not already pinned down.
  status split(const routing_view& view, step_plan& plan, std::size_t room) noexcept {
    room += masked_.size();
    unmask();
    const auto divided = groups_.divide(view, plan, room, [&](expert_id id) {
      const auto at = unique_.index_of(id);
      if (plan.services_[at] == service::hit) return table_.evictable(plan.slots_[at]);
      return plan.services_[at] == service::fill;
    });
    return divided == status::ok ? plan_group(0, plan) : divided;
  }

  status plan_group(std::size_t group, step_plan& plan) noexcept {
    const auto visit = plan.count_;
    const bool judged = plan.judged_;
    const bool edited = plan.edited_;
    begin(groups_.visit(), plan);
    plan.context_.ordinal += group;  // a group is an event
    plan.count_.ignored = visit.ignored;
    if constexpr (!Miss::fetches_all) {
      plan.judged_ = judged;
      plan.count_.dropped = visit.dropped;
      plan.count_.substituted = visit.substituted;
      plan.edited_ = edited;
    }
    plan.count_.groups = static_cast<std::uint32_t>(groups_.count());
    plan.count_.group = static_cast<std::uint32_t>(group);
    look_up_group(group, plan);
    drop_refused(plan);
    if constexpr (!Miss::fetches_all)
      if (several_precisions()) return serve_group_by_precision(plan);
    const auto free = free_.count(plan.context_.pool);
    if (miss_count_ <= free) return reserve(plan, 0);
    mask(plan.slots());
    const auto room = pools_[index(plan.context_.pool)].evictable - masked_.size() + free;
    const auto chosen =
        miss_count_ <= room ? choose_victims(plan, miss_count_ - free) : status::no_victim;
    unmask();
    return chosen == status::ok ? reserve(plan, miss_count_ - free) : chosen;
  }
  void look_up_group(std::size_t group, step_plan& plan) noexcept {
    const auto part = groups_.group(group);
    look_up(part.ids, part.weights, plan);
    plan.tokens_ = part.tokens;
    plan.expert_wise_ = groups_.how() == visit_split::by_expert;
    if constexpr (detail::needs_weights<Eviction>())
      if (weigh_ && plan.expert_wise_)
        add_weights(groups_.visit().experts, groups_.visit().weights, plan);
  }
  void drop_refused(step_plan& plan) noexcept {
    std::size_t kept = 0;
    for (std::size_t j = 0; j < miss_count_; ++j) {
      const auto at = misses_[j];
      if (groups_.refused(plan.experts_[at]))
        leave_on_host(plan, at);
      else
        misses_[kept++] = at;
    }
    miss_count_ = kept;
    if constexpr (!Miss::fetches_all)
      if (several_precisions())
        for (std::size_t i = 0; i < plan.count_.distinct; ++i)
          if (plan.slots_[i] != no_slot && groups_.refused(plan.experts_[i]))
            leave_on_host(plan, i);
  }

  // --- misses that a policy decides -----------------------------------------------------------------------

  /// How far the fills of one precision have come.
  struct rung {
    pool_id pool = 0;
    std::size_t free = 0;    ///< free slots
    std::size_t room = 0;    ///< free slots and victims that may be had
    std::size_t wanted = 0;  ///< misses that go there
    std::size_t victims = 0;
    std::size_t first_victim = 0;  ///< in victims_
    std::size_t given = 0;
  };

  [[nodiscard]] bool several_precisions() const noexcept { return ladder_.size() > 1; }

  /// Asks the miss policy, serves the visit that it leaves, and books what it left out.
  [[gnu::noinline]] status decide_misses(const routing_view& view, step_plan& plan) noexcept {
    observed_ = view.weights;
    left_out_count_ = 0;
    const auto count = describe_misses(view, plan);
    if (count == 0) return status::ok;
    ledger_.judge(plan, std::span(misses_).first(miss_count_));
    std::copy(view.experts.begin(), view.experts.end(), routed_ids_.begin());
    const auto ids = std::span(routed_ids_).first(view.experts.size());
    miss_.decide(std::span(asked_).first(count), view, {located(view.layer)}, ids,
                 std::span(decisions_).first(count));
    auto effective = view;
    if (left_out(plan, count, ids)) {
      plan.edited_ = true;
      effective.experts = ids;
      plan.all_hits_ = true;  // what is left of the visit may be
      look_up(ids, view.weights, plan);
      plan.routed_ = ids;
    }
    plan.judged_ = true;
    refuse_decided(plan);
    upgrade_decided(plan);
    if (miss_count_ == 0) return status::ok;
    return several_precisions() ? serve_by_precision(effective, plan)
                                : serve_misses(effective, plan);
  }

  /// The visit's experts that are absent or held below the highest precision, into asked_.
  std::size_t describe_misses(const routing_view& view, const step_plan& plan) noexcept {
    if (miss_count_ == 0 && !several_precisions()) return 0;
    std::size_t count = 0;
    for (std::size_t i = 0; i < plan.count_.distinct; ++i) {
      const auto slot = plan.slots_[i];
      const auto held = slot == no_slot ? miss::absent : slot_precision_[index(slot)];
      if (held == 0) continue;
      asked_[count] = {.expert = plan.experts_[i],
                       .uses = 0,
                       .rank = std::numeric_limits<std::uint16_t>::max(),
                       .weight = view.weights.empty() ? 1.0F : 0.0F,
                       .held = held};
      wanted_[index(plan.experts_[i])] = {static_cast<std::uint32_t>(count++), 0};
    }
    asked_count_ = count;
    if (count != 0) count_uses(view);
    return count;
  }
  /// True if the policy was asked about the expert in this visit.
  [[nodiscard]] bool was_asked(expert_id e) const noexcept {
    const auto at = wanted_[index(e)].asked;
    return at < asked_count_ && asked_[at].expert == e;
  }
  void count_uses(const routing_view& view) noexcept {
    const auto k = static_cast<std::size_t>(shape().top_k);
    for (std::size_t i = 0, rank = 0; i < view.experts.size();
         ++i, rank = rank + 1 == k ? 0 : rank + 1) {
      const auto e = view.experts[i];
      if (e < 0 || e >= shape().experts) continue;
      if (!was_asked(e)) continue;
      auto& one = asked_[wanted_[index(e)].asked];
      ++one.uses;
      one.rank = std::min(one.rank, static_cast<std::uint16_t>(rank));
      if (!view.weights.empty()) one.weight = std::max(one.weight, view.weights[i]);
    }
  }
  /// Takes dropped experts out of the routed ids; returns whether the ids differ from the router's.
  bool left_out(step_plan& plan, std::size_t count, std::span<expert_id> ids) noexcept {
    std::uint64_t dropped = 0;
    std::uint64_t substituted = 0;
    std::uint64_t held = 0;
    for (std::size_t j = 0; j < count; ++j) {
      auto& decision = decisions_[j];
      HOTSET_ASSERT(decision.action != miss_action::keep || asked_[j].held != miss::absent);
      if (decision.action == miss_action::drop) {
        std::replace(ids.begin(), ids.end(), asked_[j].expert, no_expert);
        ++dropped;
      } else if (decision.action == miss_action::substitute) {
        ++substituted;
      } else {
        continue;
      }
      if (asked_[j].held == miss::absent)
        left_out_[left_out_count_++] = asked_[j].expert;
      else
        ++held;
    }
    ledger_.leave_out(dropped, substituted);
    ledger_.too_low(held);
    plan.count_.dropped = static_cast<std::uint32_t>(dropped);
    plan.count_.substituted = static_cast<std::uint32_t>(substituted);
    return dropped + substituted != 0;
  }
  /// What the policy leaves on the host takes no slot; what it fetches has a precision.
  void refuse_decided(step_plan& plan) noexcept {
    std::size_t kept = 0;
    for (std::size_t j = 0; j < miss_count_; ++j) {
      const auto at = misses_[j];
      auto& want = wanted_[index(plan.experts_[at])];
      const auto& decision = decisions_[want.asked];
      if (decision.action == miss_action::host) {
        leave_on_host(plan, at);
        continue;
      }
      want.precision = std::min(decision.precision, lowest());
      misses_[kept++] = at;
    }
    miss_count_ = kept;
    ledger_.refuse(plan.count_.host);
  }
  [[nodiscard]] precision_id lowest() const noexcept {
    return static_cast<precision_id>(ladder_.size() - 1);
  }
  /// A resident copy that is too low for this use is a miss like others; its slot is kept until the commit of a
  /// better one. A copy that is on its way or read by an open visit is used as it is, or not at all.
  void upgrade_decided(step_plan& plan) noexcept {
    if (!several_precisions()) return;
    std::size_t too_low = 0;
    for (std::uint32_t i = 0; i < plan.count_.distinct; ++i) {
      const auto slot = plan.slots_[i];
      if (slot == no_slot || slot_precision_[index(slot)] == 0) continue;
      if (!was_asked(plan.experts_[i])) continue;
      auto& want = wanted_[index(plan.experts_[i])];
      const auto& decision = decisions_[want.asked];
      if (decision.action == miss_action::host) {
        leave_on_host(plan, i);
        ++too_low;
        continue;
      }
      if (decision.action != miss_action::fetch) continue;
      want.precision = std::min(decision.precision, lowest());
      if (want.precision >= slot_precision_[index(slot)] || !table_.evictable(slot)) continue;
      if (plan.all_hits_) write_services(plan);
      plan.services_[i] = service::fill;
      misses_[miss_count_++] = i;
      ++too_low;
    }
    std::sort(misses_.begin(), misses_.begin() + static_cast<std::ptrdiff_t>(miss_count_));
    ledger_.too_low(too_low);
    ledger_.refuse(plan.count_.host);
  }
  static void leave_on_host(step_plan& plan, std::size_t i) noexcept {
    if (plan.all_hits_) write_services(plan);
    plan.services_[i] = service::host;
    plan.slots_[i] = no_slot;
    ++plan.count_.host;
  }
  /// So many upgrades are not made: their visit uses the copies that there are. Pre: the others are counted.
  void use_as_held(step_plan& plan, std::size_t upgrades) noexcept {
    ledger_.good_enough(upgrades);
    plan.all_hits_ = miss_count_ == 0 && plan.count_.host == 0;
  }
  static void write_services(step_plan& plan) noexcept {
    std::fill_n(plan.services_.begin(), plan.count_.distinct, service::hit);
    plan.all_hits_ = false;
  }

  /// Gives each miss a place at the precision it is wanted in, else at the next lower one with room, else higher;
  /// never one that is no better than a copy it has.
  status serve_by_precision(const routing_view& view, step_plan& plan) noexcept {
    if constexpr (!Admission::admits_all) refuse_misses(plan);
    mask(plan.slots());
    const auto room = measure_room(plan.context_.layer);
    if (miss_count_ > room) {
      unmask();
      return split_by_precision(view, plan);
    }
    const auto served = assign_and_reserve(plan);
    unmask();
    return served;
  }
  status serve_group_by_precision(step_plan& plan) noexcept {
    mask(plan.slots());
    const auto served = miss_count_ <= measure_room(plan.context_.layer) ? assign_and_reserve(plan)
                                                                         : status::no_victim;
    unmask();
    return served;
  }
  /// A visit that does not fit uses resident copies as they are.
  status split_by_precision(const routing_view& view, step_plan& plan) noexcept {
    std::size_t kept = 0;
    std::size_t upgrades = 0;
    for (std::size_t j = 0; j < miss_count_; ++j) {
      const auto at = misses_[j];
      if (plan.slots_[at] == no_slot) {
        misses_[kept++] = at;
      } else {
        plan.services_[at] = service::hit;
        ++upgrades;
      }
    }
    miss_count_ = kept;
    use_as_held(plan, upgrades);
    mask(plan.slots());
    const auto room = measure_room(plan.context_.layer);
    if (upgrades != 0 && miss_count_ <= room) {
      const auto served = assign_and_reserve(plan);
      unmask();
      return served;
    }
    return split(view, plan, room);
  }
  /// Pre: the visit's slots are masked. Returns how many slots the layer's pools can give.
  std::size_t measure_room(layer_id layer) noexcept {
    std::size_t total = 0;
    for (std::size_t p = 0; p < ladder_.size(); ++p) {
      const auto pool = layout_.pool_of(layer, static_cast<precision_id>(p));
      const auto free = free_.count(pool);
      ladder_[p] = {.pool = pool, .free = free};
      ladder_[p].room = free + pools_[index(pool)].evictable;
    }
    for (const auto slot : masked_) --ladder_[slot_precision_[index(slot)]].room;
    for (const auto& r : ladder_) total += r.room;
    return total;
  }
  /// Pre: the visit's slots are masked, and there is room for all misses. The heaviest choose first.
  status assign_and_reserve(step_plan& plan) noexcept {
    const auto order = std::span(by_weight_).first(miss_count_);
    for (std::uint32_t j = 0; j < miss_count_; ++j) order[j] = j;
    // In a later group of a split visit, a resident expert may have lost its slot: nobody was asked about it.
    const auto weight = [&](std::uint32_t j) {
      const auto e = plan.experts_[misses_[j]];
      return was_asked(e) ? asked_[wanted_[index(e)].asked].weight : 1.0F;
    };
    std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return weight(a) != weight(b) ? weight(a) > weight(b) : a < b;
    });
    for (const auto j : order) {
      const auto held = plan.slots_[misses_[j]];
      assigned_[j] = rung_for(precision_for(plan.experts_[misses_[j]]),
                              held == no_slot ? ladder_.size() : slot_precision_[index(held)]);
    }
    keep_assigned(plan);
    if (const auto chosen = choose_by_precision(plan); chosen != status::ok) return chosen;
    for (std::size_t j = 0; j < miss_count_; ++j) reserve_at(plan, j, assigned_[j]);
    plan.count_.fills = static_cast<std::uint32_t>(miss_count_);
    return status::ok;
  }
  [[nodiscard]] precision_id precision_for(expert_id e) const noexcept {
    return was_asked(e) ? wanted_[index(e)].precision : precision_id{0};
  }
  /// A precision above `end` with room, or `end`: an upgrade must be one.
  precision_id rung_for(precision_id wanted, std::size_t end) noexcept {
    const auto has_room = [&](std::size_t p) { return ladder_[p].wanted < ladder_[p].room; };
    std::size_t p = wanted;
    while (p < end && !has_room(p)) ++p;
    if (p == end) {
      for (p = wanted; p > 0 && !has_room(p - 1);) --p;
      if (p == 0) return static_cast<precision_id>(end);
      --p;
    }
    ++ladder_[p].wanted;
    return static_cast<precision_id>(p);
  }
  /// Drops the upgrades for which no better precision has room.
  void keep_assigned(step_plan& plan) noexcept {
    std::size_t kept = 0;
    for (std::size_t j = 0; j < miss_count_; ++j) {
      const auto at = misses_[j];
      const auto held = plan.slots_[at];
      if (held != no_slot && assigned_[j] == slot_precision_[index(held)]) {
        plan.services_[at] = service::hit;
        continue;
      }
      HOTSET_ASSERT(assigned_[j] < ladder_.size());
      assigned_[kept] = assigned_[j];
      misses_[kept++] = at;
    }
    const auto upgrades = miss_count_ - kept;
    miss_count_ = kept;
    if (upgrades != 0) use_as_held(plan, upgrades);
  }
  status choose_by_precision(const step_plan& plan) noexcept {
    std::size_t first = 0;
    for (auto& r : ladder_) {
      r.victims = r.wanted > r.free ? r.wanted - r.free : 0;
      r.first_victim = first;
      if (r.victims == 0) continue;
      auto context = plan.context_;
      context.pool = r.pool;
      const auto out = std::span(victims_).subspan(first, r.victims);
      const auto chosen = policy_.select_victims(context, evictable_, out);
      HOTSET_ASSERT(chosen == r.victims);
      if (chosen != r.victims) return status::no_victim;
      first += r.victims;
    }
    return status::ok;
  }
  void reserve_at(step_plan& plan, std::size_t j, precision_id precision) noexcept {
    auto& r = ladder_[precision];
    const auto at = misses_[j];
    const auto from_free = r.wanted - r.victims;
    const bool free = r.given < from_free;
    const auto slot = free ? free_.take(r.pool) : victims_[r.first_victim + r.given - from_free];
    ++r.given;
    auto& entry = table_[slot];
    const auto victim = free ? no_key : entry.key;
    plan.fills_[j] = {.key = {plan.context_.layer, plan.experts_[at]},
                      .slot = slot,
                      .generation = ++entry.reservations,
                      .victim = victim,
                      .precision = precision,
                      .speculative = false,
                      .after = entry.last_reader};
    if (victim != no_key) map_.remove(victim);
    plan.slots_[at] = slot;
  }

  /// At the commit: what was left out is known now, and the policy hears of the weights.
  void settle_decisions(const step_plan& plan) noexcept {
    if (plan.count_.group != 0) return;
    for (std::size_t j = 0; j < left_out_count_; ++j)
      ledger_.saw({plan.context_.layer, left_out_[j]});
    miss_.observe(observed_);
  }
  /// The key has moved to another slot; its old one becomes free.
  void give_up_lower_copy(slot_id slot) noexcept {
    auto& entry = table_[slot];
    auto& pool = pools_[index(pool_of(slot, entry.key.layer))];
    policy_.on_evict(slot, entry.key);
    if (speculating()) forget_speculation(slot, pool);
    pool.resident_bytes -= bytes_in(slot);
    entry.state = slot_state::free;
    refresh_evictable(slot, pool);
    mix(slot, no_key);
    free_.give_back(pool_of(slot, entry.key.layer), slot);
  }

  // --- committing -----------------------------------------------------------------------------------------

  // Odd while a plan is open: then its number.
  [[nodiscard]] bool is_open() const noexcept { return serial_ % 2 != 0; }
  [[nodiscard]] bool is_open(const step_plan& plan) const noexcept {
    return is_open() && plan.serial_ == serial_;
  }
  void open(step_plan& plan) noexcept { plan.serial_ = ++serial_; }
  void close() noexcept { ++serial_; }

  /// True if the plan's order is the order of use and no one needs to hear of how an expert was served.
  [[nodiscard]] static bool is_plain(const step_plan& plan) noexcept {
    return Admission::admits_all && (Miss::fetches_all || plan.count_.host == 0) &&
           !plan.reordered_ && plan.count_.groups == 1;
  }
  /// Tells the policies of each distinct expert, in the order of its last appearance.
  void notify(const step_plan& plan) noexcept {
    if (plan.all_hits_ && is_plain(plan)) {
      for (std::size_t i = 0; i < plan.count_.distinct; ++i)
        policy_.on_hit(describe_access(plan, i));
      return;
    }
    const auto services = plan.services();
    for (std::size_t j = 0; j < plan.count_.distinct; ++j) {
      const std::size_t i = plan.reordered_ ? plan.order_[j] : j;
      auto a = describe_access(plan, i);
      if (plan.count_.groups > 1) a.repeated = !groups_.count_once(a.key.expert);
      tell(a, services[i]);
    }
  }
  void tell(const access& a, service how) noexcept {
    if (how == service::hit) {
      policy_.on_hit(a);
    } else if (how == service::fill) {
      policy_.on_fill(a);
    } else {
      ledger_.saw(a.key);
      policy_.on_bypass(a);
    }
    if constexpr (!Admission::admits_all)
      admission_.on_use(a, how == service::hit, how != service::host);
  }
  [[nodiscard]] access describe_access(const step_plan& plan, std::size_t i) const noexcept {
    access a;
    a.key = {plan.context_.layer, plan.experts_[i]};
    a.slot = plan.slots_[i];
    a.pool = plan.context_.pool;
    if constexpr (!Miss::fetches_all) {
      if (a.slot != no_slot) {
        a.pool = pool_of(a.slot, a.key.layer);
        a.precision = slot_precision_[index(a.slot)];
      }
    }
    a.step = plan.context_.step;
    a.ordinal = plan.context_.ordinal;
    a.kind = plan.context_.kind;
    if constexpr (detail::needs_weights<Eviction>()) {
      a.weight = plan.weights_[i];
      a.rank = plan.ranks_[i];
    }
    return a;
  }

  /// Gives each fill's slot to its key.
  [[gnu::noinline]] void place_fills(const step_plan& plan, bool at_once) noexcept {
    for (std::size_t j = 0; j < plan.count_.fills; ++j) {
      const auto& f = plan.fills_[j];
      auto& pool = pools_[index(pool_of(f.slot, plan.context_.layer))];
      const auto bytes = bytes_in(f.slot, plan.context_.layer);
      ledger_.totals.bytes_demand += bytes;
      const auto lower = Miss::fetches_all ? no_slot : map_.locate(f.key);
      if (lower != no_slot)
        give_up_lower_copy(lower);
      else if (plan.count_.groups == 1 && ledger_.was_evicted(f.key, plan.context_.step))
        ledger_.totals.bytes_refetched += bytes;
      if (f.victim != no_key) let_go(f.slot, f.victim, pool);
      auto& entry = table_[f.slot];
      hand_over(entry, f);
      entry.state = slot_state::resident;
      pool.resident_bytes += bytes;
      map_.place_and_publish(f.key, f.slot);
      refresh_evictable(f.slot, pool);
      mix(f.slot, f.key);
      ledger_.saw(f.key);
      if (at_once) policy_.on_fill(describe_access(plan, misses_[j]));
    }
  }
  /// Reserves the slot for a copy that is on its way; whatever it held is forgotten first.
  void place_filling(const fill& f) noexcept {
    if (f.victim != no_key) forget(f.slot);
    auto& pool = pools_[index(pool_of(f.slot, f.key.layer))];
    auto& entry = table_[f.slot];
    hand_over(entry, f);
    entry.state = slot_state::filling;
    entry.unused_prefetch = f.speculative;
    unused_prefetches_ += f.speculative ? 1U : 0U;
    const auto bytes = bytes_in(f.slot);
    pool.resident_bytes += bytes;
    (f.speculative ? ledger_.totals.bytes_prefetched : ledger_.totals.bytes_warm) += bytes;
    map_.place(f.key, f.slot);
    ++pool.filling;
    ++filling_;
    speculated_ = true;
    mix(f.slot, f.key);
    if (!f.speculative) ledger_.saw(f.key);  // warm from an earlier run
  }

  /// The slot no longer holds its key; the caller decides what becomes of the slot.
  void forget(slot_id slot, loss how = loss::evicted) noexcept {
    auto& entry = table_[slot];
    auto& pool = pools_[index(pool_of(slot, entry.key.layer))];
    map_.remove(entry.key);
    let_go(slot, entry.key, pool, how);
    entry.state = slot_state::free;
    refresh_evictable(slot, pool);
    mix(slot, no_key);
  }
  /// Books the loss of what the slot held.
  void let_go(slot_id slot, expert_key key, pool_state& pool, loss how = loss::evicted) noexcept {
    policy_.on_evict(slot, key);
    if constexpr (!Admission::admits_all) admission_.on_evict(key, ledger_.step());
    if (how == loss::evicted)
      ledger_.evicted(key, table_[slot].unused_prefetch ? requests_.meant_for(slot) : 0);
    if (speculating()) forget_speculation(slot, pool);
    pool.resident_bytes -= bytes_in(slot, key.layer);
  }
  void forget_speculation(slot_id slot, pool_state& pool) noexcept {
    auto& entry = table_[slot];
    if (entry.unused_prefetch) {
      --unused_prefetches_;
      entry.unused_prefetch = false;
      ++ledger_.totals.wasted_prefetches;
      ledger_.totals.bytes_prefetch_wasted += bytes_in(slot);
    }
    requests_.forget(slot);
    if (entry.state == slot_state::filling) {
      --pool.filling;
      --filling_;
    }
  }
  /// False while nothing was prefetched: then there is nothing to settle.
  [[nodiscard]] bool speculating() noexcept {
    if (speculated_) speculated_ = unused_prefetches_ + filling_ != 0 || !requests_.empty();
    return speculated_;
  }
  /// Forgets a slot's key and gives the slot back to its pool.
  void release(slot_id slot, loss how = loss::evicted) noexcept {
    const auto pool = pool_of(slot, table_[slot].key.layer);
    forget(slot, how);
    free_.give_back(pool, slot);
  }

  void refresh_evictable(slot_id slot) noexcept {
    refresh_evictable(slot, pools_[index(pool_of(slot, table_[slot].key.layer))]);
  }
  void refresh_evictable(slot_id slot, pool_state& pool) noexcept {
    const bool now = table_.evictable(slot);
    if (now == evictable_.test(slot)) return;
    evictable_.assign(slot, now);
    now ? ++pool.evictable : --pool.evictable;
  }

  void mix(slot_id slot, expert_key key) noexcept {
    const auto word = (static_cast<std::uint64_t>(static_cast<std::uint32_t>(slot)) << 40U) ^
                      (static_cast<std::uint64_t>(static_cast<std::uint32_t>(key.layer)) << 20U) ^
                      static_cast<std::uint64_t>(static_cast<std::uint32_t>(key.expert));
    hash_ = (hash_ ^ word) * 0x9E3779B97F4A7C15ULL;
    hash_ ^= hash_ >> 29U;
  }

  // --- speculation ----------------------------------------------------------------------------------------

  warm_result speculate(const visit_context& context, std::span<const prefetch_request> requests,
                        step_plan& plan, speculation mode, std::size_t most_fills) noexcept {
    if (is_open()) return {status::plan_open, 0};
    if (plan.capacity() != capacity_) return {status::invalid_argument, 0};
    plan.reset();
    plan.routed_ = {};
    plan.tokens_ = {};
    plan.context_ = context;
    plan.speculative_ = true;
    plan.refused_ = 0;
    masked_.clear();
    std::size_t consumed = 0;
    for (const auto& request : requests) {
      if (plan.count_.fills == plan.capacity() || plan.count_.requested == plan.capacity() ||
          plan.count_.deferred == plan.capacity())
        break;
      const auto at = static_cast<std::uint32_t>(consumed++);
      if (!shape().contains(request.key) || planned(plan, request.key)) continue;
      const auto slot = map_.locate(request.key);
      if (slot == no_slot) {
        if (plan.count_.fills >= most_fills || !reserve_speculative(plan, request, mode, at))
          plan.deferred_[plan.count_.deferred++] = at;
      } else if (mode == speculation::guarded) {
        if (guard_ != prefetch_guard::none) mask_one(slot);
        plan.requested_[plan.count_.requested++] = describe_request(request, slot, context);
      }
    }
    unmask();
    open(plan);
    return {status::ok, consumed};
  }
  [[nodiscard]] static bool planned(const step_plan& plan, expert_key key) noexcept {
    return std::ranges::any_of(plan.fills(), [key](const fill& f) { return f.key == key; });
  }
  [[nodiscard]] access describe_request(const prefetch_request& request, slot_id slot,
                                        const visit_context& context) const noexcept {
    access a;
    a.key = request.key;
    a.slot = slot;
    a.pool = pool_of(slot, request.key.layer);
    a.precision = precision_of(slot);
    a.step = request.for_step;
    a.ordinal = context.ordinal;
    a.kind = context.kind;
    a.speculative = true;
    return a;
  }
  bool reserve_speculative(step_plan& plan, const prefetch_request& request, speculation mode,
                           std::uint32_t at) noexcept {
    fill f;
    f.key = request.key;
    f.speculative =
        mode == speculation::guarded;  // a warm start is no prediction: it is not judged as one
    if constexpr (!Miss::fetches_all)
      f.precision = f.speculative ? std::min(miss_.prefetch_precision(), lowest()) : 0;
    if (!find_speculative_slot(plan, request, f)) {
      plan.refused_ += f.speculative ? 1U : 0U;
      return false;
    }
    if (f.victim != no_key) map_.remove(f.victim);
    auto& entry = table_[f.slot];
    f.generation = ++entry.reservations;
    f.after = entry.last_reader;
    plan.requested_steps_[plan.count_.fills] = request.for_step;
    plan.request_of_[plan.count_.fills] = at;
    plan.fills_[plan.count_.fills++] = f;
    return true;
  }
  bool find_speculative_slot(const step_plan& plan, const prefetch_request& request,
                             fill& f) noexcept {
    const auto pool = layout_.pool_of(f.key.layer, f.precision);
    if (is_for_groups(pool, f.precision)) return false;
    if (f.speculative && !leaves_room_for_demand(plan, f.key.layer, pool)) return false;
    if (free_.count(pool) == 0)
      return f.speculative && choose_speculative_victim(plan.context_, pool, request, f);
    f.slot = free_.take(pool);
    return true;
  }
  /// What a pool can give now was counted when the visit that is under way was divided: its groups need all of it.
  [[nodiscard]] bool is_for_groups(pool_id pool, precision_id precision) const noexcept {
    return next_group_ != 0 && layout_.pool_of(groups_.visit().layer, precision) == pool;
  }
  /// Copies on their way hold their slots: enough must stay for one token, or a visit could find no victim.
  [[nodiscard]] bool leaves_room_for_demand(const step_plan& plan, layer_id layer,
                                            pool_id pool) const noexcept {
    const auto slots = [&](pool_id p) { return index(pools_[index(p)].capacity); };
    if (on_their_way(plan, pool) + kept_for_demand(pool) >= slots(pool)) return false;
    if constexpr (Miss::fetches_all) return true;
    auto needed = index(shape().top_k);
    std::size_t all = 0;
    for (std::size_t p = 0; p < layout_.precisions(); ++p) {
      const auto one = layout_.pool_of(layer, static_cast<precision_id>(p));
      needed += on_their_way(plan, one);
      all += slots(one);
    }
    return needed < all;
  }
  [[nodiscard]] std::size_t on_their_way(const step_plan& plan, pool_id pool) const noexcept {
    auto count = pools_[index(pool)].filling;
    for (const auto& f : plan.fills()) count += pool_of(f.slot, f.key.layer) == pool ? 1U : 0U;
    return count;
  }
  /// One token's experts; of several precisions' pools, each keeps a part of them.
  [[nodiscard]] std::size_t kept_for_demand(pool_id pool) const noexcept {
    const auto k = static_cast<std::size_t>(shape().top_k);
    if constexpr (Miss::fetches_all) return k;
    const auto slots = static_cast<std::size_t>(pools_[index(pool)].capacity);
    return layout_.precisions() == 1 ? k : std::min(k, slots - 1);
  }
  /// Chosen victims and, under `named`, requested keys stay masked until the whole plan is made.
  bool choose_speculative_victim(visit_context context, pool_id pool,
                                 const prefetch_request& request, fill& f) noexcept {
    context.pool = pool;
    if (guard_ != prefetch_guard::none)
      for (const auto slot : requests_.slots()) mask_one(slot);
    const bool choosy = guard_ == prefetch_guard::predicted;
    const auto asked = std::span(victims_).first(choosy ? victims_.size() : 1);
    const auto spared = masked_.size();
    auto count = asked.size();
    while (f.victim == no_key && count == asked.size()) {
      count = policy_.select_victims(context, evictable_, asked);
      for (const auto slot : asked.first(count)) {
        if (choosy && expected_.sooner(table_[slot].key, request, context)) {
          mask_one(slot);
          continue;
        }
        f.slot = slot;
        f.victim = table_[slot].key;
        break;
      }
    }
    unmask_from(spared);  // what this request may not evict, another one may
    if (f.victim == no_key) return false;
    mask_one(f.slot);
    return true;
  }
  void mask_one(slot_id slot) noexcept {
    if (!evictable_.test(slot)) return;
    evictable_.reset(slot);
    masked_.push_back(slot);
  }

  [[gnu::noinline]] void commit_speculative(step_plan& plan) noexcept {
    ledger_.totals.refused_prefetches += plan.refused_;
    for (std::size_t i = 0; i < plan.count_.fills; ++i) {
      const auto& f = plan.fills_[i];
      place_filling(f);
      ++ledger_.totals.speculative_fills;
      if (f.speculative) requests_.remember(f.slot, plan.requested_steps_[i]);
      policy_.on_fill(
          describe_request({f.key, plan.requested_steps_[i], 1.0F}, f.slot, plan.context_));
    }
    for (std::size_t i = 0; i < plan.count_.requested; ++i) {
      const auto& a = plan.requested_[i];
      if (map_.locate(a.key) != a.slot) continue;  // given up for a better request of the same plan
      requests_.remember(a.slot, a.step);
      speculated_ = true;
      if constexpr (requires { policy_.on_request(a); }) policy_.on_request(a);
    }
  }
  /// First uses of prefetched experts; late ones join the plan's fence list and become readable.
  [[gnu::noinline]] void use_prefetched(step_plan& plan) noexcept {
    const auto services = plan.services();
    for (std::size_t i = 0; i < plan.count_.distinct; ++i) {
      if (services[i] != service::hit) continue;
      const auto slot = plan.slots_[i];
      auto& entry = table_[slot];
      const bool prefetched = entry.unused_prefetch;
      if (prefetched) {
        entry.unused_prefetch = false;
        --unused_prefetches_;
        ++ledger_.totals.prefetch_hits;
        ledger_.totals.bytes_prefetch_used += bytes_in(slot);
      }
      ledger_.saw(entry.key);
      if (entry.state != slot_state::filling) continue;
      plan.late_[plan.count_.late++] = slot;
      ledger_.totals.late_prefetches += prefetched ? 1U : 0U;
      arrived(slot, entry.generation);
    }
  }

  // --- quotas ---------------------------------------------------------------------------------------------

  status shrink(pool_id p, layer_id layer, std::int32_t slots) noexcept {
    auto& pool = pools_[index(p)];
    const auto surplus = static_cast<std::size_t>(pool.capacity - slots);
    if (surplus > free_.count(p) + pool.evictable) return status::busy;
    visit_context context;
    context.layer = layer;
    context.pool = p;
    context.step = ledger_.step();
    while (free_.count(p) < surplus) {
      if (policy_.select_victims(context, evictable_, std::span(victims_).first(1)) == 0)
        return status::busy;
      release(victims_.front());
    }
    auto& spare = spare_[index(layout_.at(p).size_class)];
    for (std::size_t i = 0; i < surplus; ++i) spare.push_back(free_.take(p));
    pool.capacity = slots;
    return status::ok;
  }
  status grow(pool_id p, std::int32_t slots) noexcept {
    auto& pool = pools_[index(p)];
    auto& spare = spare_[index(layout_.at(p).size_class)];
    if (static_cast<std::size_t>(slots - pool.capacity) > spare.size())
      return status::exceeds_memory;
    for (; pool.capacity < slots; ++pool.capacity) {
      free_.give_back(p, spare.back());
      spare.pop_back();
    }
    return status::ok;
  }

  /// Makes the class's last slots the spare ones; `target_` says where the claimed ones among them go.
  void gather_spare(size_class_id size_class) noexcept {
    auto& spare = spare_[index(size_class)];
    auto& slots = order_;
    slots.clear();
    for (std::size_t s = 0; s < table_.slots(); ++s)
      if (layout_.at(layout_.pool_of_slot(static_cast<slot_id>(s))).size_class == size_class)
        slots.push_back(static_cast<slot_id>(s));
    std::sort(spare.begin(), spare.end());
    auto vacant = spare.begin();
    const auto last = slots.end() - static_cast<std::ptrdiff_t>(spare.size());
    for (auto s = last; s != slots.end(); ++s)
      if (!std::binary_search(spare.begin(), spare.end(), *s)) target_[index(*s)] = *vacant++;
    // The lowest is claimed first.
    std::reverse_copy(last, slots.end(), spare.begin());
  }
  template <class Moved>
  void move_pool(pool_id p, Moved& moved) {
    order_residents(p);
    add_unnamed(p);
    const auto goes = [&](slot_id s) { return target_[index(s)] != no_slot; };
    if (std::ranges::none_of(order_, goes)) return;
    for (const auto slot : order_) policy_.on_evict(slot, table_[slot].key);
    for (const auto slot : order_) {
      const auto to = goes(slot) ? target_[index(slot)] : slot;
      if (to != slot) {
        move_entry(slot, to, pools_[index(p)]);
        moved(slot, to);
      }
      access a;
      a.key = table_[to].key;
      a.slot = to;
      a.pool = p;
      a.precision = precision_of(to);
      a.step = ledger_.step();
      policy_.on_fill(a);
    }
  }
  /// Evictable slots of a pool, those first that the policy would give up first, into `order_`.
  void order_residents(pool_id p) noexcept {
    order_.resize(table_.slots());
    visit_context context;
    context.pool = p;
    context.layer = layout_.at(p).layers.front();
    context.step = ledger_.step();
    order_.resize(policy_.select_victims(context, evictable_, order_));
  }
  /// Evictable slots that the policy did not name: it may keep some back.
  void add_unnamed(pool_id p) noexcept {
    if (order_.size() == pools_[index(p)].evictable) return;
    for (std::size_t s = 0; s < table_.slots(); ++s) {
      const auto slot = static_cast<slot_id>(s);
      if (evictable_.test(slot) && pool_of(slot, table_[slot].key.layer) == p &&
          std::ranges::find(order_, slot) == order_.end())
        order_.push_back(slot);
    }
  }
  void move_entry(slot_id from, slot_id to, pool_state& pool) noexcept {
    auto& before = table_[from];
    auto& now = table_[to];
    now.key = before.key;
    now.state = slot_state::resident;
    now.unused_prefetch = std::exchange(before.unused_prefetch, false);
    now.generation = ++now.reservations;
    now.last_reader = before.last_reader;
    before.state = slot_state::free;
    refresh_evictable(from, pool);
    refresh_evictable(to, pool);
    map_.place_and_publish(now.key, to);
    requests_.move(from, to);
    mix(to, now.key);
  }

  pool_layout layout_;
  Eviction policy_;
  Admission admission_;
  Miss miss_;
  bool takes_visits_;  ///< the policy hears of whole visits
  bool weigh_;         ///< the policy asks for weights
  prefetch_guard guard_;
  multiples_of whole_tokens_;  ///< top_k
  std::size_t most_ids_;
  std::size_t capacity_;  ///< most distinct experts of a plan

  slot_map map_;
  slot_table table_;
  free_slots free_;
  slot_mask evictable_;               ///< resident and not pinned
  std::vector<std::uint64_t> bytes_;  ///< of one expert, by layer
  std::vector<pool_state> pools_;
  std::vector<std::vector<slot_id>> spare_;  ///< by size class: slots that no quota claims

  unique_ids unique_;
  visit_groups groups_;
  std::vector<std::uint32_t> misses_;  ///< positions in the plan
  std::size_t miss_count_ = 0;
  std::vector<slot_id> victims_;
  std::vector<slot_id> masked_;
  std::vector<access> accesses_;
  std::vector<std::uint8_t> admitted_;

  std::uint64_t serial_ = 0;  ///< rises when a plan is opened, and when it is committed or aborted

  // of the visit that a miss policy decides
  struct wish {
    std::uint32_t asked = 0;  ///< in asked_
    precision_id precision = 0;
  };
  std::vector<precision_id> slot_precision_;  ///< [slots]; empty with one precision
  std::vector<miss> asked_;
  std::vector<miss_decision> decisions_;
  std::size_t asked_count_ = 0;
  std::vector<expert_id> routed_ids_;  ///< as the policy has edited them
  std::vector<expert_id> left_out_;    ///< misses that nobody uses after all
  std::size_t left_out_count_ = 0;
  std::span<const float> observed_{};
  std::vector<wish> wanted_;  ///< [experts]; see was_asked
  std::vector<rung> ladder_;  ///< [precisions]
  std::vector<precision_id> assigned_;
  std::vector<std::uint32_t> by_weight_;

  std::size_t next_group_ = 0;      ///< 0: no split visit is under way
  std::uint64_t group_serial_ = 0;  ///< of the plan that holds it
  prefetch_requests requests_;
  expected_uses expected_;
  std::vector<prefetch_request> warm_requests_;
  std::size_t unused_prefetches_ = 0;
  std::size_t filling_ = 0;
  bool speculated_ = false;  ///< some of the three above may not be zero

  // of a compaction
  std::vector<slot_id> target_;  ///< [slots] where a claimed slot goes
  std::vector<slot_id> order_;   ///< at most all slots

  visit_ledger ledger_;
  std::uint64_t hash_ = 0;
};

}  // namespace hotset::inline v0
