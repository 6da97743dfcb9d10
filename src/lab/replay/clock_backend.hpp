// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A transfer backend without data: computes when each copy would arrive over one link, on a virtual clock.
///
/// Scheduling: a copy may start when it was submitted and its `after` has ended. At every chunk border the link takes
/// the first copy that may start: urgent before speculative, each in order of submission. So demand pre-empts
/// speculation at the next border. A pre-empted copy resumes where it stopped; its latency is paid once.
///
/// Time advances by `submit` (to the host's time), `fence` and `wait` (to the ticket's end) and `advance`. `promote`,
/// `cancel` and `poll` have no time argument and act at the link's time: call `advance(stream.host())` first. At
/// equal times, submissions come before the link's decisions.
///
/// A fence must return its batch's arrival at once, so it runs the link ahead of the host. Later submissions cannot
/// change that: demand goes first in order of submission, so no later copy overtakes fenced demand, and copies wait
/// while the link carries demand. The link is ahead of a later copy only in two cases: fenced demand waits for a
/// reader while speculation fills the gap, or unpromoted speculation is fenced. That copy then starts at the link's
/// time or later.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/transfer/ticket_board.hpp"
#include "hotset/transfer/transfer_backend.hpp"
#include "lab/replay/clock_stream.hpp"
#include "lab/replay/link_model.hpp"

namespace hotset {

/// Receives what a link did, in order of its ends.
class link_observer {
 public:
  /// Reports chunks of one copy that ran without a break. A pre-empted fill is reported again when it resumes.
  /// what.slot == no_slot: a victim that is copied back (write_back_clock).
  virtual void on_copy(ticks begin, ticks end, const fill& what, urgency when,
                       std::uint64_t bytes) noexcept = 0;
  /// A stream waited in a fence.
  virtual void on_wait(ticks begin, ticks end) noexcept = 0;

 protected:
  ~link_observer() = default;
};

/// Takes any number of copies. No copy fails.
/// Complexity: a copy costs O(1) plus the earlier copies that may not start yet; promote and cancel search the
/// waiting copies. Allocates only if more copies wait than ever before. Threads: compatible.
class clock_backend {
 public:
  using stream_type = clock_stream;

  struct config {
    link_model link = link_model::instant();
    geometry shape{};  ///< gives the bytes of a fill; equals that of the cache
  };

  /// Errors: throws invalid_config for an invalid shape.
  explicit clock_backend(const config& setup) : clock_backend(setup, 1) {}
  clock_backend(const clock_backend&) = default;
  clock_backend(clock_backend&&) = default;
  clock_backend& operator=(const clock_backend&) = default;
  clock_backend& operator=(clock_backend&&) = default;
  virtual ~clock_backend() = default;

  /// Pre: the model has their keys and precisions.
  submission submit(std::span<const fill> fills, clock_stream& stream, urgency when) noexcept {
    advance(stream.host());
    if (fills.empty()) return {};
    auto& e = open();
    const submission out{e.id, fills.size()};
    e.left = fills.size();
    if (is_instant())
      arrive_at_once(e, fills, when);
    else
      for (const auto& f : fills) enqueue(f, out.id, when);
    return out;
  }
  void promote(ticket t) noexcept {
    for (std::size_t n = 0; n < lanes_.size(); ++n) {
      auto& later = waiting_[list_of(n, speculative)];
      auto& sooner = waiting_[list_of(n, urgent)];
      std::erase_if(later, [&](copy_id p) {
        auto& c = copies_[p];
        if (c.batch != t) return false;
        c.when = urgency::now;
        // Keeps the order of submission.
        sooner.insert(std::ranges::upper_bound(sooner, c.order, {},
                                               [&](copy_id other) { return copies_[other].order; }),
                      p);
        return true;
      });
    }
  }
  /// Returns false on an instant link: every submission has begun.
  bool cancel(ticket t) noexcept {
    auto* const e = find(t);
    if (e == nullptr || e->state != transfer_state::pending || e->started) return false;
    for (copy_id p = 0; p < copies_.size(); ++p)
      if (copies_[p].batch == t) take_back(p);
    settle(*e, transfer_state::cancelled);
    return true;
  }
  /// Makes the stream wait; the host does not. Errors: fill_failed, the batch was cancelled.
  status fence(clock_stream& stream, ticket t) noexcept {
    auto* const e = find(t);
    if (e == nullptr)
      return lost_.state(t) == transfer_state::arrived ? status::ok : status::fill_failed;
    run_until_settled(*e);
    if (e->state != transfer_state::arrived) return status::fill_failed;
    const auto waited = stream.wait_until(e->time);
    if (watcher_ != nullptr && waited != 0) watcher_->on_wait(stream.now() - waited, stream.now());
    return status::ok;
  }
  ticket record(clock_stream& stream) noexcept {
    if (stream.now() <= now_) return no_ticket;
    auto& e = open();
    e.state = transfer_state::arrived;
    e.time = stream.now();
    return e.id;
  }
  /// State of the batch at the link's time.
  [[nodiscard]] transfer_state poll(ticket t) const noexcept {
    const auto* const e = find(t);
    if (e == nullptr) return lost_.state(t);
    return e->time > now_ ? transfer_state::pending : e->state;
  }
  /// Runs the link until `t` has settled. No stream's time changes.
  transfer_state wait(ticket t) noexcept {
    auto* const e = find(t);
    if (e == nullptr) return lost_.state(t);
    run_until_settled(*e);
    if (e->time > now_) advance(e->time);
    return e->state;
  }

  /// Runs the link until `time`; a past time changes nothing. Units: ns on the streams' clock.
  void advance(ticks time) noexcept {
    while (step(time)) {
    }
    now_ = std::max(now_, time);
  }
  /// Like advance, but stops when a copy ends or is pre-empted. Returns false if none was.
  bool advance_to_stop(ticks time) noexcept {
    if (step(time)) return true;
    now_ = std::max(now_, time);
    return false;
  }
  /// Runs the link until no copy may start.
  void finish() noexcept {
    while (step(never)) {
    }
  }
  /// The link's time.
  [[nodiscard]] ticks now() const noexcept { return now_; }
  /// Units: bytes carried in finished runs of chunks.
  [[nodiscard]] std::uint64_t bytes_moved() const noexcept { return ways_.front().moved.bytes; }
  /// Time spent carrying fills, in finished runs of chunks.
  [[nodiscard]] ticks busy() const noexcept { return ways_.front().moved.time; }
  /// `observer` outlives the backend or is replaced; nullptr: none.
  void watch(link_observer* observer) noexcept { watcher_ = observer; }

 protected:
  /// Index in copies_.
  using copy_id = std::size_t;
  static constexpr auto no_copy = ~copy_id{0};
  static constexpr ticks never = std::numeric_limits<ticks>::max();
  static constexpr std::size_t urgent = 0;
  static constexpr std::size_t speculative = 1;

  /// Cost of a whole copy.
  struct cost {
    std::uint64_t bytes = 0;
    std::uint64_t chunks = 0;
    ticks time = 0;
  };
  struct carried {
    std::uint64_t bytes = 0;
    ticks time = 0;
  };
  /// A direction: cost of copies, and the amount carried.
  struct way {
    link_model link;
    std::vector<cost> costs{};  ///< [precisions][layers]
    carried moved{};
  };
  /// Carries one copy at a time.
  struct lane {
    copy_id running = no_copy;
    ticks run_begin = 0;
    ticks run_end = 0;
  };
  /// Direction and lane of a copy.
  struct route {
    std::uint8_t way = 0;
    std::uint8_t in_lane = 0;
  };
  struct copy {
    fill what{};
    ticket batch = no_ticket;  ///< none: the entry is free
    std::uint64_t order = 0;   ///< number in order of submission
    ticks ready = 0;           ///< never: waits for an unfinished batch, or is held
    std::uint64_t chunks = 0;  ///< chunks carried
    urgency when = urgency::now;
    cost whole{};
    route on{};
    bool chained = false;            ///< waits for an unfinished batch
    bool settles = true;             ///< counts towards the arrival of its batch
    copy_id waiting_fill = no_copy;  ///< for a victim's copy back: the fill that waits for its slot

    /// Held by a derived clock: it may not start.
    [[nodiscard]] bool is_held() const noexcept { return ready == never && !chained; }
  };
  struct entry {
    ticket id = no_ticket;
    ticks time = 0;  ///< end time; `never` while unknown
    std::size_t left = 0;
    transfer_state state = transfer_state::arrived;
    bool started = false;
  };

  /// `lanes`: copies that run at the same time.
  clock_backend(const config& setup, std::size_t lanes)
      : layers_(setup.shape.layer_count()),
        entries_(ticket_board::default_ring),
        lost_(entries_.size()),
        lanes_(lanes),
        waiting_(2 * lanes) {
    require_valid(setup.shape.validate());
    add_way(setup.link, setup.shape);
    copies_.reserve(256);
    free_.reserve(256);
    for (auto& list : waiting_) list.reserve(256);
  }
  void add_way(const link_model& link, const geometry& shape) {
    auto& costs = ways_.emplace_back(way{link}).costs;
    for (std::size_t p = 0; p < shape.precisions(); ++p)
      for (const auto l : each<layer_id>(shape.layers)) {
        const auto bytes = shape.bytes_of(l, static_cast<precision_id>(p));
        costs.push_back({bytes, link.chunks_of(bytes), link.time_of(bytes)});
      }
  }

  /// Enqueues a fill: its batch arrives when all of its fills were carried.
  virtual void enqueue(const fill& what, ticket batch, urgency when) noexcept {
    (void)take({}, what, batch, when);
  }
  /// Cancels a copy of a batch of which nothing has begun.
  virtual void take_back(copy_id p) noexcept { remove(p); }
  /// A copy outside all batches was carried; `fill` waits for it, if any.
  virtual void carried_beside(copy_id /*fill*/) noexcept {}

  static std::size_t list_of(std::size_t n, std::size_t when) noexcept { return n * 2 + when; }
  [[nodiscard]] std::vector<copy_id>& list_of(const copy& c) noexcept {
    return waiting_[list_of(c.on.in_lane, c.when == urgency::now ? urgent : speculative)];
  }
  [[nodiscard]] bool is_instant() const noexcept { return ways_.front().link.is_instant(); }
  [[nodiscard]] const cost& cost_of(const fill& f, std::size_t on_way = 0) const noexcept {
    const auto at = index_of(f.precision) * layers_ + index_of(f.key.layer);
    HOTSET_ASSERT(at < ways_[on_way].costs.size());
    return ways_[on_way].costs[at];
  }
  [[nodiscard]] const link_model& link_of(const copy& c) const noexcept {
    return ways_[c.on.way].link;
  }

  // --- tickets
  [[nodiscard]] entry& place(ticket t) noexcept {
    return entries_[static_cast<std::size_t>(t) & (entries_.size() - 1)];
  }
  [[nodiscard]] const entry* find(ticket t) const noexcept {
    const auto& e = entries_[static_cast<std::size_t>(t) & (entries_.size() - 1)];
    return t != no_ticket && e.id == t ? &e : nullptr;
  }
  [[nodiscard]] entry* find(ticket t) noexcept {
    return const_cast<entry*>(std::as_const(*this).find(t));
  }
  /// The ring grows if its oldest ticket is pending.
  entry& open() noexcept {
    if (place(last_ + 1).time > now_) {
      std::vector<entry> larger(2 * entries_.size());
      std::swap(entries_, larger);
      for (const auto& e : larger)
        if (e.id != no_ticket) place(e.id) = e;
    }
    auto& e = place(last_ + 1);
    lost_.leave(e.id, e.state);
    e = {++last_, never, 0, transfer_state::pending, false};
    return e;
  }
  void settle(entry& e, transfer_state state) noexcept {
    e.state = state;
    e.time = now_;
    if (chained_ == 0) return;
    for (auto& c : copies_)
      if (c.chained && c.what.after == e.id) {
        c.ready = now_;
        c.chained = false;
        --chained_;
      }
  }
  void run_until_settled(entry& e) noexcept {
    while (e.state == transfer_state::pending) (void)step(never);
  }

  // --- waiting copies
  /// Earliest start of a copy after `after`: `never` while that batch is unfinished.
  [[nodiscard]] ticks ready_after(ticket after) const noexcept {
    const auto* const e = find(after);
    return e == nullptr ? now_ : std::max(now_, e->time);
  }
  void arrive_at_once(entry& e, std::span<const fill> fills, urgency when) noexcept {
    e.state = transfer_state::arrived;
    e.time = now_;
    for (const auto& f : fills) {
      const auto at = ready_after(f.after);
      const auto bytes = cost_of(f).bytes;
      e.time = std::max(e.time, at);
      ways_.front().moved.bytes += bytes;
      if (watcher_ != nullptr) watcher_->on_copy(at, at, f, when, bytes);
    }
  }
  /// Adds a copy at the end of a lane's list.
  copy_id take(route on, const fill& f, ticket batch, urgency when) noexcept {
    if (free_.empty()) {
      free_.push_back(copies_.size());
      copies_.emplace_back();
    }
    const auto p = free_.back();
    free_.pop_back();
    const auto ready = ready_after(f.after);
    const bool chained = ready == never;
    if (chained) ++chained_;
    copies_[p] = {f, batch, ++order_, ready, 0, when, cost_of(f, on.way), on, chained};
    list_of(copies_[p]).push_back(p);
    return p;
  }
  void remove(copy_id p) noexcept {
    auto& c = copies_[p];
    if (c.chained) --chained_;
    std::erase(list_of(c), p);
    c = {};
    free_.push_back(p);
  }

  // --- the link
  /// Runs until the next end or pre-emption of a copy. Returns false if there is none until `until`.
  bool step(ticks until) noexcept {
    for (;;) {
      const auto next = begin_what_may(until);
      auto first = first_stop();
      if (first.on == nullptr || first.at.time > next) {
        if (next >= until) return false;
        now_ = next;
        continue;
      }
      if (first.at.time > until) return false;
      // At equal times, ends come before beginnings: an end may let a copy begin on the other lane.
      do {
        end_run(*first.on, first.at);
        first = first_stop();
      } while (first.on != nullptr && first.at.time == now_);
      return true;
    }
  }
  struct stop {
    ticks time = 0;
    std::uint64_t chunks = 0;  ///< chunks of the copy carried by then
  };
  struct lane_stop {
    lane* on = nullptr;
    stop at{never, 0};
  };
  [[nodiscard]] lane_stop first_stop() noexcept {
    lane_stop first;
    for (auto& on : lanes_) {
      if (on.running == no_copy) continue;
      const auto at = next_stop(on);
      if (first.on == nullptr || at.time < first.at.time) first = {&on, at};
    }
    return first;
  }
  /// Begins copies on all idle lanes. Returns the next time at which a copy may begin. A beginning at `until` is
  /// decided later, because more may be submitted by then.
  ticks begin_what_may(ticks until) noexcept {
    auto next = never;
    if (free_.size() == copies_.size()) return next;
    for (std::size_t n = 0; n < lanes_.size(); ++n)
      if (lanes_[n].running == no_copy) next = std::min(next, begin_on(n, until));
    return next;
  }
  ticks begin_on(std::size_t n, ticks until) noexcept {
    auto earliest = never;
    for (const auto when : {urgent, speculative})
      for (const auto p : waiting_[list_of(n, when)]) {
        const auto ready = std::max(copies_[p].ready, now_);
        if (ready == now_ && now_ < until) {
          begin_run(lanes_[n], p);
          return never;
        }
        earliest = std::min(earliest, ready);
      }
    return earliest;
  }
  void begin_run(lane& on, copy_id p) noexcept {
    auto& c = copies_[p];
    on.running = p;
    on.run_begin = now_;
    on.run_end = now_ + c.whole.time;
    if (c.chunks != 0) on.run_end -= link_of(c).time_until(c.whole.bytes, c.chunks);
    if (c.chunks != 0) return;
    if (auto* const e = find(c.batch)) e->started = true;
  }
  /// End of the running copy, or the chunk border at which a copy with precedence may start.
  [[nodiscard]] stop next_stop(const lane& on) const noexcept {
    const auto& c = copies_[on.running];
    const auto& link = link_of(c);
    auto earliest = never;
    if (c.when != urgency::now) earliest = earliest_before(list_of(c.on.in_lane, urgent), no_copy);
    earliest = std::min(
        earliest,
        earliest_before(list_of(c.on.in_lane, c.when == urgency::now ? urgent : speculative),
                        on.running));
    earliest = std::max(earliest, now_);
    if (earliest >= on.run_end) return {on.run_end, c.whole.chunks};
    const auto passed = link.time_until(c.whole.bytes, c.chunks);
    const auto chunks = link.chunks_by(c.whole.bytes, earliest - on.run_begin + passed);
    const auto time = on.run_begin + link.time_until(c.whole.bytes, chunks) - passed;
    // The remaining chunks take no time.
    if (time >= on.run_end) return {on.run_end, c.whole.chunks};
    return {time, chunks};
  }
  [[nodiscard]] ticks earliest_before(std::size_t list, copy_id end) const noexcept {
    auto earliest = never;
    for (const auto p : waiting_[list]) {
      if (p == end) break;
      earliest = std::min(earliest, copies_[p].ready);
    }
    return earliest;
  }
  void end_run(lane& on, const stop& at) noexcept {
    const auto p = std::exchange(on.running, no_copy);
    auto& c = copies_[p];
    const auto& link = link_of(c);
    const auto bytes =
        link.bytes_until(c.whole.bytes, at.chunks) - link.bytes_until(c.whole.bytes, c.chunks);
    c.chunks = at.chunks;
    now_ = at.time;
    auto& moved = ways_[c.on.way].moved;
    moved.time += at.time - on.run_begin;
    moved.bytes += bytes;
    if (watcher_ != nullptr) watcher_->on_copy(on.run_begin, now_, c.what, c.when, bytes);
    if (at.chunks != c.whole.chunks) return;
    const auto batch = c.batch;
    const bool settles = c.settles;
    const auto waits = c.waiting_fill;
    remove(p);
    if (!settles) return carried_beside(waits);
    auto& e = place(batch);
    if (--e.left == 0) settle(e, transfer_state::arrived);
  }

  std::size_t layers_;
  std::vector<entry> entries_;
  lost_tickets lost_;
  std::vector<way> ways_{};  ///< the first one carries fills
  std::vector<lane> lanes_;
  std::vector<copy> copies_{};
  std::vector<copy_id> free_{};
  /// Copies in order of submission, one list per lane and urgency, including the running one.
  std::vector<std::vector<copy_id>> waiting_;
  link_observer* watcher_ = nullptr;
  ticket last_ = no_ticket;
  std::uint64_t order_ = 0;
  std::size_t chained_ = 0;  ///< copies that wait for an unsettled batch
  ticks now_ = 0;
};

static_assert(is_transfer_backend<clock_backend>());

}  // namespace hotset
