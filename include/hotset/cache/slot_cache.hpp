// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Joins a pager and a transfer backend: one call per visit turns routed ids into slots that hold the experts' bytes.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "hotset/cache/cache_visit.hpp"
#include "hotset/cache/copies_underway.hpp"
#include "hotset/core/error.hpp"
#include "hotset/core/forecast.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/core/status.hpp"
#include "hotset/paging/pager.hpp"
#include "hotset/transfer/expert_source.hpp"
#include "hotset/transfer/prefetch_queue.hpp"
#include "hotset/transfer/transfer_backend.hpp"

namespace hotset {

/// Settings for prefetches, retries and log messages.
struct slot_cache_config {
  prefetch_queue::config queue{};
  /// Limit on outstanding speculative copies; other requests wait. A higher limit keeps the link busy between calls. A
  /// lower limit delays the choice of victims.
  std::size_t most_under_way = 64;
  /// Most attempts of `serve` to resolve a group whose copies fail at once.
  std::int32_t attempts = 1;
  log_sink log{};

  [[nodiscard]] validation validate() const {
    if (auto bad = queue.validate()) return bad;
    if (most_under_way < 1) return error{"most_under_way = 0, accepted: 1 or more"};
    if (attempts < 1) return refusal("attempts = ", attempts, ", accepted: 1 or more");
    return std::nullopt;
  }
};

/// Threads: compatible. Use one thread at a time and one stream for all calls; the stream orders readers and copies.
/// No allocation after construction.
///
/// Each visit is one call of `serve`. Engines that cannot pass their kernel as a function (graphs, callbacks) call
/// `resolve`, [kernel], `release`, and while `visit.more()`: `resolve_next`, [kernel], `release`. `abandon` ends a
/// visit early.
template <class Pager, transfer_backend Backend>
class slot_cache {
 public:
  using stream_type = typename Backend::stream_type;

  /// Pre: `backend` outlives the cache. Errors: those of `setup`; a backend whose slots differ from the pager's
  /// layout.
  static result<std::unique_ptr<slot_cache>> create(Pager decisions, Backend& backend,
                                                    const slot_cache_config& setup = {}) {
    if (auto bad = check(decisions, backend, setup)) return *std::move(bad);
    return std::unique_ptr<slot_cache>(
        new slot_cache(checked{}, std::move(decisions), backend, setup));
  }
#if HOTSET_EXCEPTIONS
  /// Same as `create`. Errors: throws invalid_config.
  slot_cache(Pager decisions, Backend& backend, const slot_cache_config& setup = {})
      : slot_cache((require_valid(check(decisions, backend, setup)), checked{}),
                   std::move(decisions), backend, setup) {}
#endif
  slot_cache(const slot_cache&) = delete;
  slot_cache& operator=(const slot_cache&) = delete;
  /// Waits for outstanding copies. A failed copy that no call has reported is only logged; call drain() first to get
  /// the error.
  ~slot_cache() {
    wait_for_copies();
    (void)settle();
  }

  [[nodiscard]] cache_visit make_visit() const { return cache_visit(pager_.make_plan()); }

  /// Serves a whole visit. For each group in order: starts its copies, makes `stream` wait for them, and calls
  /// use(group). Keeps the group's slots until the work that `use` enqueued has read them. `use` returns nothing or a
  /// status. A status other than ok, or an exception, ends the visit and abandons the remaining groups.
  /// `use` may call `prefetch`. It must not call functions of the cache that take `visit`.
  /// Errors: those of `resolve` and `resolve_next`, and the status of `use`; some groups may have been served.
  template <class Use>
  status serve(const routing_view& view, stream_type& stream, cache_visit& visit, Use&& use) {
    if (visit.is_open()) return status::busy;
    if (pager_.is_unfinished(visit.plan_)) return status::visit_unfinished;
    if (const auto lost = settle(); lost != status::ok) return lost;
    const leaving end{*this, stream, visit};
    auto now = tried(stream, visit, [&] { return pager_.plan(view, visit.plan_); });
    while (now == status::ok) {
      now = detail::shown(use, visit_group(visit.plan_, row(view.layer)));
      release(visit, stream);
      if (now != status::ok || !visit.more()) break;
      now = tried(stream, visit, [&] { return pager_.plan_next(visit.plan_); });
    }
    return now;
  }

  /// Plans the visit, starts its copies, and makes `stream` wait for them. On ok, `visit.plan()` names a slot for
  /// every expert that does not stay on the host. These slots are pinned until `release`.
  /// Errors: those of pager::plan; fill_failed (the visit pins nothing; slots whose copy had started are free, other
  /// keys are unchanged), busy (`visit` was not released).
  status resolve(const routing_view& view, stream_type& stream, cache_visit& visit) noexcept {
    if (visit.is_open()) return status::busy;
    if (const auto lost = settle(); lost != status::ok) return lost;
    return plan_and_carry_out(stream, visit, [&] { return pager_.plan(view, visit.plan_); });
  }
  /// Plans the next group of a split visit, like `resolve`. Pre: the previous group was released.
  /// Errors: busy (it was not released); no_plan (`visit` has no group left, or was abandoned); fill_failed, as
  /// `resolve`: the group may be tried again.
  status resolve_next(stream_type& stream, cache_visit& visit) noexcept {
    if (visit.is_open()) return status::busy;
    if (!has(visit)) return status::no_plan;
    return plan_and_carry_out(stream, visit, [&] { return pager_.plan_next(visit.plan_); });
  }
  /// Call after the kernel that reads the visit's slots is enqueued. Copies into these slots wait for that kernel.
  /// Does nothing to a visit of another cache: it stays open.
  void release(cache_visit& visit, stream_type& stream) noexcept {
    if (!visit.is_open() || !has(visit)) return;
    const auto reader = backend_.record(stream);
    for (std::size_t i = 0; i < visit.ends_.pins; ++i) pager_.unpin(visit.pins_[i], reader);
    visit.ends_.pins = 0;
    visit.ends_.is_open = false;
    if (!pager_.is_unfinished(visit.plan_)) visit.ends_.run = nullptr;
  }
  /// Ends a visit early: releases its slots and abandons its remaining groups. Does nothing if the visit has ended or
  /// is another cache's.
  void abandon(cache_visit& visit, stream_type& stream) noexcept {
    release(visit, stream);
    if (!has(visit) || !pager_.is_unfinished(visit.plan_)) return;
    pager_.abandon();
    visit.ends_.run = nullptr;
  }

  /// Queues a prefetcher's requests after the visit of `context`, best first. Starts copies as far as slots and link
  /// allow. Waiting requests are retried at every later visit until their own visit comes. Between the groups of a
  /// split visit, its slots are not available.
  /// `expected`: the forecast from which the requests were made, for the `predicted` guard.
  /// Errors: fill_failed for an earlier copy, see `settle`. A copy that cannot be started is not an error.
  status prefetch(const visit_context& context, std::span<const prefetch_request> requests,
                  stream_type& stream, const forecast& expected = {}) noexcept {
    if (const auto lost = settle(); lost != status::ok) return lost;
    pager_.expect(context, expected);
    const auto displaced = queue_.stats().displaced;
    queue_.advance(context.step, context.layer);
    for (const auto& request : requests) queue_.add(request);
    if (displaced == 0 && queue_.stats().displaced != 0)
      log_(log_level::warning, "the prefetch queue is full: its last requests are dropped");
    // First pass: the policy must know all requested residents before it chooses a victim.
    plan_waiting(context, stream, 0);
    plan_waiting(context, stream, most_under_way_);
    return status::ok;
  }
  /// Begins a step: policies that use routed tokens receive `view`. Pre: view.layer == before_layers.
  void open_step(const routing_view& view) noexcept { pager_.open_step(view); }
  /// Evicts ahead of the visit of `context` until `slots` slots of its layer's pool are free, see pager::pre_evict.
  std::size_t pre_evict(visit_context context, std::size_t slots,
                        std::span<const slot_id> spared) noexcept {
    context.pool = pager_.layout().pool_of_layer(context.layer);
    return pager_.pre_evict(context, slots, spared, [](slot_id, expert_key) {});
  }
  /// Fills free slots with `keys` in the given order, least wanted first, and waits for the copies. A failed copy
  /// leaves its slot free.
  /// Errors: visit_unfinished; fill_failed if the backend refused a copy or an earlier copy failed (see `settle`):
  /// call again.
  status warm(std::span<const expert_key> keys, stream_type& stream) noexcept {
    while (!keys.empty()) {
      make_room();
      const auto [planned, consumed] = pager_.plan_warm(keys, prefetch_plan_);
      if (planned != status::ok) return planned;
      if (const auto started = start_warm(stream); started != status::ok) return started;
      if (const auto lost = drain(); lost != status::ok) return lost;
      keys = keys.subspan(consumed);
    }
    return status::ok;
  }

  /// Waits for copies that read host bytes, then drops the key or the layer from this cache and from caches below it:
  /// the backend's source, a host_tier. Call it before the bytes change or are freed.
  /// Errors: those of pager::invalidate: then nothing is dropped, and the next call reports a failed copy;
  /// fill_failed, see `settle`: the key or layer was dropped.
  template <class KeyOrLayer>
  status invalidate(KeyOrLayer what) noexcept {
    queue_.forget(what);
    wait_for_copies();
    take_in_settled();
    if (const auto refused = pager_.invalidate(what); refused != status::ok) return refused;
    detail::invalidate_in(backend_, what);
    return notify_of_loss();
  }
  /// Waits for all copies, then calls pager::set_quota. Errors: those of set_quota; fill_failed, see `settle`: no
  /// quota has changed.
  status set_quota(layer_id layer, std::int32_t slots) noexcept {
    if (const auto lost = drain(); lost != status::ok) return lost;
    return pager_.set_quota(layer, slots);
  }

  /// Moves residents to the first slots of each size class, see pager::compact. moved(from, to) copies the bytes
  /// before it returns. Pre: device work that reads slots has ended. Not for the hot path.
  /// Errors: as `settle`; busy (a visit is open).
  template <class Moved>
  status compact(Moved moved) {
    if (const auto lost = drain(); lost != status::ok) return lost;
    if (!pager_.is_idle()) return status::busy;
    pager_.compact(std::move(moved));
    return status::ok;
  }

  /// Waits for all started copies. Queued requests stay queued. Errors: as `settle`.
  status drain() noexcept {
    wait_for_copies();
    return settle();
  }
  /// Processes copies that have arrived or failed since the last call. Every other call does this too.
  /// Errors, reported once, by the first call that can: fill_failed if a copy failed that a visit may have read:
  /// repeat the step.
  status settle() noexcept {
    if (!underway_.empty()) take_in_settled();
    return notify_of_loss();
  }

  [[nodiscard]] std::span<const slot_id> row(layer_id layer) const noexcept {
    return pager_.row(layer);
  }
  /// Version of the row; changes with the row, and 0 if the row never changed.
  [[nodiscard]] std::uint64_t row_version(layer_id layer) const noexcept {
    return pager_.row_version(layer);
  }
  [[nodiscard]] pager_stats stats() const { return pager_.stats(); }
  /// The queue of waiting prefetches, and its statistics.
  [[nodiscard]] const prefetch_queue& queue() const noexcept { return queue_; }
  [[nodiscard]] Pager& pager() noexcept { return pager_; }
  [[nodiscard]] const Pager& pager() const noexcept { return pager_; }

 private:
  struct checked {};
  slot_cache(checked, Pager&& decisions, Backend& backend, const slot_cache_config& setup)
      : pager_(std::move(decisions)),
        backend_(backend),
        queue_(setup.queue, pager_.shape().layers),
        most_under_way_(setup.most_under_way),
        attempts_(setup.attempts),
        log_(setup.log),
        prefetch_plan_(pager_.make_plan()),
        started_(prefetch_plan_.capacity()),
        fill_ticket_(pager_.layout().slots(), no_ticket),
        underway_(pager_.layout().slots() * 2 + prefetch_plan_.capacity() + 1) {
    if (const auto warning = pager_.warning()) log_(log_level::warning, *warning);
  }
  static validation check(const Pager& decisions, const Backend& backend,
                          const slot_cache_config& setup) {
    if (auto bad = setup.validate()) return bad;
    return detail::check_layout(backend, decisions.layout());
  }

  /// True if the visit's last call was to this cache: only this cache has its pins.
  [[nodiscard]] bool has(const cache_visit& visit) const noexcept {
    return visit.ends_.cache == this;
  }
  /// Scope guard: abandons the visit however serve() ends.
  struct leaving {
    slot_cache& cache;
    stream_type& stream;
    cache_visit& visit;
    ~leaving() { cache.abandon(visit, stream); }
  };
  /// Retries failures of this group's copies only. settle() reports earlier failures; they are not retried.
  template <class Plan>
  status tried(stream_type& stream, cache_visit& visit, Plan plan) noexcept {
    auto now = plan_and_carry_out(stream, visit, plan);
    for (std::int32_t i = 1; i < attempts_ && now == status::fill_failed; ++i)
      now = plan_and_carry_out(stream, visit, plan);
    return now;
  }
  static void end_visit(void* cache, void* stream, cache_visit& visit) noexcept {
    static_cast<slot_cache*>(cache)->abandon(visit, *static_cast<stream_type*>(stream));
  }

  template <class Plan>
  status plan_and_carry_out(stream_type& stream, cache_visit& visit, Plan plan) noexcept {
    make_room();
    auto planned = plan();
    const auto lacks_room = [&] {
      return planned == status::no_victim || planned == status::does_not_fit;
    };
    while (lacks_room() && end_speculation(visit.plan_)) planned = plan();
    if (planned == status::ok && !visit.plan_.more() && (!underway_.empty() || !queue_.empty()))
      visit_has_come(visit.plan_);
    while (planned == status::ok && !fence_late(stream, visit.plan_)) planned = plan();
    return planned == status::ok ? carry_out(stream, visit) : planned;
  }
  /// Outstanding copies and slots read by other visits may leave a visit too few slots. Cancels the last outstanding
  /// copy in a pool of the visit, or waits for it; copies that the visit uses come last. Returns false if there is
  /// none.
  [[gnu::noinline]] bool end_speculation(const visit_plan& plan) noexcept {
    const auto& layout = pager_.layout();
    const auto is_of_visit = [&](const copy_underway& copy) {
      return std::ranges::find(plan.slots(), copy.slot) != plan.slots().end();
    };
    const auto in_the_way = [&](const copy_underway& copy) {
      return is_awaited(copy) && layout.pool_of_layer(pager_.slot(copy.slot).key.layer) ==
                                     layout.pool_of_layer(plan.context().layer);
    };
    auto last = underway_.rend();
    for (auto copy = underway_.rbegin(); copy != underway_.rend(); ++copy)
      if (in_the_way(*copy) && (last == underway_.rend() || is_of_visit(*last))) last = copy;
    if (last == underway_.rend()) return false;
    if (is_of_visit(*last) || !backend_.cancel(last->batch))
      (void)backend_.wait(last->batch);
    else
      pager_.cancelled(std::exchange(last->slot, no_slot), last->generation);
    take_in_settled();
    return true;
  }
  /// Before the commit: fences a hit whose speculative copy is late, and drops a hit whose copy failed.
  bool fence_late(stream_type& stream, visit_plan& plan) noexcept {
    for (const auto slot : plan.slots()) {
      if (slot == no_slot || pager_.slot(slot).state != slot_state::filling) continue;
      const auto batch = fill_ticket_[slot];
      backend_.promote(batch);
      if (backend_.fence(stream, batch) == status::ok &&
          backend_.poll(batch) != transfer_state::failed)
        continue;
      const auto generation = pager_.slot(slot).generation;
      (void)pager_.abort(plan);
      pager_.failed(slot, generation);
      wait_for_refused(slot, batch);  // a fence may fail while the copy is still running
      for (auto& copy : underway_)
        if (copy.batch == batch && copy.slot == slot)
          copy.slot = no_slot;  // handled: no visit has read it
      return false;
    }
    return true;
  }

  status carry_out(stream_type& stream, cache_visit& visit) noexcept {
    auto& plan = visit.plan_;
    submission sent;
    if (!plan.fills().empty()) {
      sent = backend_.submit(plan.fills(), stream, urgency::now);
      if (sent.accepted != plan.fills().size() || backend_.fence(stream, sent.id) != status::ok ||
          backend_.poll(sent.id) ==
              transfer_state::failed)  // fence() does not report failures of a separate copy stream
        return give_up(plan, sent);
    }
    if (const auto done = pager_.commit(plan); done != status::ok) return done;
    if (sent.id != no_ticket && backend_.poll(sent.id) != transfer_state::arrived)
      remember(plan, sent.id);
    visit.ends_ = {&slot_cache::end_visit, this, &stream, 0, true};
    for (const auto slot : plan.slots())
      if (slot != no_slot) visit.pins_[visit.ends_.pins++] = pager_.pin(slot);
    if (!plan.more() && !queue_.empty() && underway_.speculative() < most_under_way_)
      plan_waiting(plan.context(), stream, most_under_way_);
    return status::ok;
  }
  /// True if the copy's slot still waits for it.
  [[nodiscard]] bool is_awaited(const copy_underway& copy) const noexcept {
    if (copy.slot == no_slot) return false;
    const auto& entry = pager_.slot(copy.slot);
    return entry.generation == copy.generation && entry.state == slot_state::filling;
  }
  /// Cancels prefetches for this visit that it does not use: they are too late. Cancels them before the wait for the
  /// visit's own copies: a copy thread would start them right after these.
  void visit_has_come(const visit_plan& plan) noexcept {
    const auto& context = plan.context();
    queue_.expire(context.step, context.layer);
    for (auto& copy : underway_) {
      if (!copy.speculative || copy.for_step > context.step || !is_awaited(copy) ||
          pager_.slot(copy.slot).key.layer != context.layer ||
          std::ranges::find(plan.slots(), copy.slot) != plan.slots().end() ||
          !backend_.cancel(copy.batch))
        continue;
      pager_.cancelled(copy.slot, copy.generation);
      copy.slot = no_slot;
    }
  }
  /// Makes later copies into a slot wait until a refused copy has stopped writing to it. If that copy has ended, it
  /// may have waited for no reader of the slot: then the reader's ticket stays.
  void wait_for_refused(slot_id slot, ticket copy) noexcept {
    if (backend_.poll(copy) == transfer_state::pending) pager_.wait_before_fill(slot, copy);
  }
  status give_up(visit_plan& plan, const submission& sent) noexcept {
    for (std::size_t i = 0; i < plan.fills().size(); ++i) {
      started_[i] = i < sent.accepted ? 1 : 0;
      if (i < sent.accepted) wait_for_refused(plan.fills()[i].slot, sent.id);
    }
    (void)pager_.abort(plan, std::span(started_).first(plan.fills().size()));
    if (backend_.poll(sent.id) == transfer_state::pending)
      underway_.watch({sent.id, no_slot, 0, false, 0});
    return status::fill_failed;
  }

  /// Tries each waiting request once while at most `most` speculative copies are outstanding. Each copy has its own
  /// ticket, so each can be cancelled.
  void plan_waiting(const visit_context& context, stream_type& stream, std::size_t most) noexcept {
    auto& plan = prefetch_plan_;
    for (std::size_t first = 0; first < queue_.size();) {
      make_room();
      // An expert of an open visit may have been lost. Its slots are free, but their readers are not known yet.
      if (lost_ != status::ok) return;
      const auto batch = queue_.requests().subspan(
          first, std::min(prefetch_plan_.capacity(), queue_.size() - first));
      const auto room = most - std::min(most, underway_.speculative());
      if (pager_.plan_prefetch(context, batch, plan, room) != status::ok) return;
      const auto started = submit_each(plan, stream);
      const bool refused = started != plan.fills().size();
      pager_.keep_first(plan, started);
      (void)pager_.commit(plan);
      for (std::size_t i = 0; i < started; ++i) {
        const auto& f = plan.fills()[i];
        const auto for_step = batch[plan.request_of(i)].for_step;
        underway_.watch({fill_ticket_[f.slot], f.slot, f.generation, true, for_step});
      }
      const auto left = plan.deferred().size();
      queue_.take(first, batch.size(), plan.deferred());
      first += left;
      if (refused) return;  // the backend's queue is full
    }
  }
  /// Returns how many copies the backend accepted.
  std::size_t submit_each(const visit_plan& plan, stream_type& stream) noexcept {
    for (std::size_t i = 0; i < plan.fills().size(); ++i) {
      const auto sent = backend_.submit(plan.fills().subspan(i, 1), stream, urgency::soon);
      if (sent.accepted != 1) return i;
      fill_ticket_[plan.fills()[i].slot] = sent.id;
    }
    return plan.fills().size();
  }

  status start_warm(stream_type& stream) noexcept {
    auto& plan = prefetch_plan_;
    submission sent;
    if (!plan.fills().empty()) {
      sent = backend_.submit(plan.fills(), stream, urgency::soon);
      if (sent.accepted != plan.fills().size()) return give_up(plan, sent);
    }
    if (const auto done = pager_.commit(plan); done != status::ok) return done;
    for (const auto& f : plan.fills()) fill_ticket_[f.slot] = sent.id;
    if (sent.id != no_ticket) remember(plan, sent.id);
    return status::ok;
  }

  void remember(const visit_plan& plan, ticket batch) noexcept {
    for (const auto& f : plan.fills()) underway_.watch({batch, f.slot, f.generation, false, 0});
  }
  /// Call before planning: a failed copy removes its slot from the map.
  void make_room() noexcept {
    while (underway_.size() > pager_.layout().slots() * 2) {
      underway_.wait_for_first(backend_);
      take_in_settled();
    }
  }
  void take_in_settled() noexcept {
    if (!underway_.take_in_settled(backend_, pager_)) lost_ = status::fill_failed;
  }
  status notify_of_loss() noexcept {
    if (lost_ != status::ok)
      log_(log_level::error, "a copy failed after a visit may have read it: the step is lost");
    return std::exchange(lost_, status::ok);
  }
  void wait_for_copies() noexcept { underway_.wait_for_all(backend_); }

  Pager pager_;
  Backend& backend_;
  prefetch_queue queue_;
  std::size_t most_under_way_;
  std::int32_t attempts_;
  log_sink log_;
  visit_plan prefetch_plan_;
  std::vector<std::uint8_t> started_;
  per_slot<ticket> fill_ticket_;  ///< ticket of the slot's speculative copy
  copies_underway underway_;
  status lost_ = status::ok;
};

}  // namespace hotset
