// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Moves no byte: tells when each copy would arrive over one link, on a virtual clock.
///
/// Discipline of the link: a copy may start when it has been submitted and its `after` has ended. At every border of
/// chunks the link takes the first copy that may start: urgent before speculative, each in order of submission. So
/// demand pre-empts speculation at the next border, and a copy that gave way goes on where it stopped; its latency is
/// paid once.
///
/// Time moves by `submit` (to the host's time), `fence` and `wait` (to the ticket's end) and `advance`. `promote`,
/// `cancel` and `poll` name no time, so they act at the link's: `advance(stream.host())` first. At one time, what is
/// submitted comes before what the link decides.
///
/// A fence must know at once when its batch arrives, so it runs the link ahead of the host. What the host submits
/// afterwards cannot change what was run: demand goes first and in order of submission, so nothing submitted later
/// overtakes the demand that is fenced, and while the link carries demand, later copies of any kind would wait
/// anyway. The link is ahead of a later copy only where fenced demand waits for a reader while speculation fills
/// the gap, or where speculation is fenced that was not promoted; that copy then starts no earlier than the link's
/// time.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/eviction/order/recency_list.hpp"
#include "hotset/transfer/ticket_board.hpp"
#include "hotset/transfer/transfer_backend.hpp"
#include "lab/replay/clock_stream.hpp"
#include "lab/replay/link_model.hpp"

namespace hotset {

/// Is told what a link did, in order of its ends.
class link_observer {
 public:
  /// Chunks of one copy that ran without a break. A fill that gave way is told of again when it goes on.
  /// what.slot == no_slot: a victim that is copied back (write_back_clock).
  virtual void on_copy(ticks begin, ticks end, const fill& what, urgency when,
                       std::uint64_t bytes) noexcept = 0;
  /// A stream stood still in a fence.
  virtual void on_wait(ticks begin, ticks end) noexcept = 0;

 protected:
  ~link_observer() = default;
};

/// A ticket older than the ring has arrived or is a lost one, as on a ticket_board. No copy fails.
/// Complexity: a copy costs O(1) plus the copies before it that may not start yet; promote and cancel look through
/// what is waiting. No allocation after construction. Threads: compatible.
class clock_backend {
 public:
  using stream_type = clock_stream;

  struct config {
    link_model link = link_model::instant();
    geometry shape{};               ///< tells the bytes of a fill
    std::size_t most_fills = 4096;  ///< not arrived at one time; an instant link takes any number
    std::size_t ring = ticket_board::default_ring;  ///< tickets; rounded up to a power of two

    [[nodiscard]] validation validate() const {
      if (auto bad = shape.validate()) return bad;
      if (most_fills < 1 || most_fills > limit)
        return error{"most_fills = " + std::to_string(most_fills) + ", accepted: 1.." +
                     std::to_string(limit)};
      if (ring < 1 || ring > limit)
        return error{"ring = " + std::to_string(ring) + ", accepted: 1.." + std::to_string(limit)};
      return std::nullopt;
    }

   private:
    static constexpr std::size_t limit = std::size_t{1} << 28;
  };

  /// Errors: those of config.
  static result<clock_backend> create(const config& setup) {
    if (auto bad = setup.validate()) return *std::move(bad);
    return clock_backend(setup, unchecked{});
  }
#if HOTSET_EXCEPTIONS
  /// Errors: throws invalid_config.
  explicit clock_backend(const config& setup) : clock_backend(create(setup).value()) {}
#endif
  clock_backend(const clock_backend&) = default;
  clock_backend(clock_backend&&) = default;
  clock_backend& operator=(const clock_backend&) = default;
  clock_backend& operator=(clock_backend&&) = default;
  virtual ~clock_backend() = default;

  /// Why a cache of `layout` cannot be timed by this clock: it would ask for copies whose bytes are not known here.
  [[nodiscard]] validation check(const pool_layout& layout) const {
    const auto& shape = layout.shape();
    const auto layers = shape.layer_count();
    const auto& costs = ways_.front().costs;
    if (layers != layers_ || shape.precisions() * layers > costs.size())
      return error{"a clock for " + std::to_string(layers_) + " layers in " +
                   std::to_string(costs.size() / layers_) +
                   " precisions, accepted: " + std::to_string(layers) + " in " +
                   std::to_string(shape.precisions()) + ", those of the cache"};
    for (std::size_t p = 0; p < shape.precisions(); ++p)
      for (std::size_t l = 0; l < layers; ++l) {
        const auto timed = costs[p * layers + l].bytes;
        const auto wanted = shape.bytes_of(static_cast<layer_id>(l), static_cast<precision_id>(p));
        if (timed != wanted)
          return error{"a clock for experts of " + std::to_string(timed) + " bytes in layer " +
                       std::to_string(l) + ", accepted: " + std::to_string(wanted) +
                       ", those of the cache"};
      }
    return std::nullopt;
  }

  /// A full queue or ring of tickets refuses speculation (`accepted` tells) and makes the host wait with demand.
  /// Pre: the model has their keys and precisions.
  submission submit(std::span<const fill> fills, clock_stream& stream, urgency when) noexcept {
    advance(stream.host());
    const auto begin = now_;
    const bool waits = when == urgency::now;
    const auto room = is_instant() || waits ? fills.size() : free_.size() / copies_per_fill_;
    if (fills.empty() || room == 0) return {};
    auto* const e = waits ? wait_to_open() : open();
    if (e == nullptr) return {};
    const submission out{e->id, std::min(room, fills.size())};
    if (is_instant())
      arrive_at_once(*e, fills, when);
    else
      enqueue_all(*e, fills.first(out.accepted), when);
    if (now_ != begin) stream.issue_at(now_);  // it had to wait
    return out;
  }
  void promote(ticket t) noexcept {
    for (std::size_t n = 0; n < lanes_.size(); ++n)
      for (auto p = waiting_.front(list_of(n, speculative)); p != no_copy;) {
        const auto next = waiting_.after(p);
        if (copies_[index(p)].batch == t) {
          waiting_.erase(p);
          insert_urgent(p);
        }
        p = next;
      }
  }
  /// False on an instant link: whatever was submitted has begun.
  bool cancel(ticket t) noexcept {
    auto* const e = find(t);
    if (e == nullptr || e->state != transfer_state::pending || e->started) return false;
    for (std::size_t list = 0; list < lists(); ++list)
      for (auto p = waiting_.front(list); p != no_copy;) {
        const auto next = waiting_.after(p);
        if (copies_[index(p)].batch == t) take_back(p);
        p = next;
      }
    settle(*e, transfer_state::cancelled);
    return true;
  }
  /// The stream waits; the host does not. Errors: fill_failed, the batch was cancelled.
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
  /// A full ring of tickets runs the link until the oldest has settled.
  ticket record(clock_stream& stream) noexcept {
    if (stream.now() <= now_) return no_ticket;
    auto* const e = wait_to_open();
    if (stream.now() <= now_) {  // it has run while the ring was full
      e->state = transfer_state::arrived;
      e->time = now_;
      return no_ticket;
    }
    e->state = transfer_state::arrived;
    e->time = stream.now();
    return e->id;
  }
  /// Where the batch stands at the link's time.
  [[nodiscard]] transfer_state poll(ticket t) const noexcept {
    const auto* const e = find(t);
    if (e == nullptr) return lost_.state(t);
    return e->time > now_ ? transfer_state::pending : e->state;
  }
  /// Runs the link until `t` has settled. No stream's time moves.
  transfer_state wait(ticket t) noexcept {
    auto* const e = find(t);
    if (e == nullptr) return lost_.state(t);
    run_until_settled(*e);
    if (e->time > now_) advance(e->time);
    return e->state;
  }

  /// Runs the link until `time`; a time that has passed changes nothing. Units: ns on the streams' clock.
  void advance(ticks time) noexcept {
    while (step(time)) {
    }
    now_ = std::max(now_, time);
  }
  /// As advance, but stops where a copy ends or gives way. False: none did.
  bool advance_to_stop(ticks time) noexcept {
    if (step(time)) return true;
    now_ = std::max(now_, time);
    return false;
  }
  /// Runs the link until nothing is left that it may carry.
  void finish() noexcept {
    while (step(never)) {
    }
  }
  /// The link's time.
  [[nodiscard]] ticks now() const noexcept { return now_; }
  /// Units: bytes that the link has carried, in runs of chunks that are over.
  [[nodiscard]] std::uint64_t bytes_moved() const noexcept { return ways_.front().moved.bytes; }
  /// Time that the link has been carrying fills, in runs of chunks that are over.
  [[nodiscard]] ticks busy() const noexcept { return ways_.front().moved.time; }
  /// `observer` outlives the backend or is replaced; nullptr: nobody watches.
  void watch(link_observer* observer) noexcept { watcher_ = observer; }

 protected:
  /// A place in copies_.
  enum class copy_id : std::int32_t {};
  static constexpr auto no_copy = basic_recency_list<copy_id>::none;
  static constexpr ticks never = std::numeric_limits<ticks>::max();
  static constexpr std::size_t urgent = 0;
  static constexpr std::size_t speculative = 1;

  /// What a whole copy costs.
  struct cost {
    std::uint64_t bytes = 0;
    std::uint64_t chunks = 0;
    ticks time = 0;
  };
  struct carried {
    std::uint64_t bytes = 0;
    ticks time = 0;
  };
  /// A direction: what copies take, and what it has carried.
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
  /// Where a copy goes.
  struct route {
    std::uint8_t way = 0;
    std::uint8_t in_lane = 0;
  };
  struct copy {
    fill what{};
    ticket batch = no_ticket;
    std::uint64_t order = 0;   ///< of submission
    ticks ready = 0;           ///< never: after a batch that has not ended, or held
    std::uint64_t chunks = 0;  ///< carried
    urgency when = urgency::now;
    cost whole{};
    route on{};
    bool chained = false;  ///< after a batch that has not ended
    bool settles = true;   ///< its batch has arrived when it and the others have

    /// By the clock that took it: it may not start.
    [[nodiscard]] bool is_held() const noexcept { return ready == never && !chained; }
  };
  struct entry {
    ticket id = no_ticket;
    ticks time = 0;  ///< of its end; `never` while it is not known
    std::size_t left = 0;
    transfer_state state = transfer_state::arrived;
    bool started = false;
  };

  struct unchecked {};
  /// `lanes`: copies that run at one time; `copies_per_fill`: places that a fill may need.
  clock_backend(const config& setup, unchecked, std::size_t lanes = 1,
                std::size_t copies_per_fill = 1)
      : layers_(setup.shape.layer_count()),
        entries_(std::bit_ceil(setup.ring)),
        lost_(entries_.size()),
        lanes_(lanes),
        copies_per_fill_(copies_per_fill),
        copies_(setup.link.is_instant() ? 0 : setup.most_fills * copies_per_fill),
        waiting_(copies_.size(), lists()) {
    add_way(setup.link, setup.shape);
    for (auto p = copies_.size(); p-- > 0;) free_.push_back(static_cast<copy_id>(p));
  }
  void add_way(const link_model& link, const geometry& shape) {
    auto& costs = ways_.emplace_back(way{link}).costs;
    for (std::size_t p = 0; p < shape.precisions(); ++p)
      for (const auto l : each<layer_id>(shape.layers)) {
        const auto bytes = shape.bytes_of(l, static_cast<precision_id>(p));
        costs.push_back({bytes, link.chunks_of(bytes), link.time_of(bytes)});
      }
  }

  /// Enqueues a fill: its batch has arrived when all of its fills have been carried.
  virtual void enqueue(const fill& what, ticket batch, urgency when) noexcept {
    make_room(1);
    (void)take({}, what, batch, when);
  }
  /// A copy of a batch of which nothing has begun is not made.
  virtual void take_back(copy_id p) noexcept { remove(p); }
  /// A copy that settles no batch has been carried; its place is free.
  virtual void carried_beside(copy_id /*p*/) noexcept {}

  static std::size_t index(copy_id p) noexcept { return static_cast<std::size_t>(p); }
  static std::size_t list_of(std::size_t n, std::size_t when) noexcept { return n * 2 + when; }
  [[nodiscard]] std::size_t lists() const noexcept { return lanes_.size() * 2; }
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
  /// nullptr while the oldest ticket in the ring is pending.
  entry* open() noexcept {
    auto& e = place(last_ + 1);
    if (e.time > now_) return nullptr;
    lost_.leave(e.id, e.state);
    e = {++last_, never, 0, transfer_state::pending, false};
    return &e;
  }
  /// Runs the link until the oldest ticket in the ring has settled.
  entry* wait_to_open() noexcept {
    auto* e = open();
    if (e != nullptr) return e;
    (void)wait(place(last_ + 1).id);
    return open();
  }
  void settle(entry& e, transfer_state state) noexcept {
    e.state = state;
    e.time = now_;
    if (chained_ == 0) return;
    for (std::size_t list = 0; list < lists(); ++list)
      for (auto p = waiting_.front(list); p != no_copy; p = waiting_.after(p))
        if (auto& c = copies_[index(p)]; c.chained && c.what.after == e.id) {
          c.ready = now_;
          c.chained = false;
          --chained_;
        }
  }
  void run_until_settled(entry& e) noexcept {
    while (e.state == transfer_state::pending) (void)step(never);
  }

  // --- what waits for the link
  /// When a copy that names `after` may start: `never` while that is a batch under way.
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
  void enqueue_all(entry& e, std::span<const fill> fills, urgency when) noexcept {
    e.left = fills.size();
    for (const auto& f : fills) enqueue(f, e.id, when);
  }
  /// The host waits for free places.
  void make_room(std::size_t count) noexcept {
    while (free_.size() < count) (void)step(never);
  }
  /// A copy of its own, at the end of a lane's list.
  copy_id take(route on, const fill& f, ticket batch, urgency when) noexcept {
    const auto p = free_.back();
    free_.pop_back();
    const auto ready = ready_after(f.after);
    const bool chained = ready == never;
    if (chained) ++chained_;
    copies_[index(p)] = {f, batch, ++order_, ready, 0, when, cost_of(f, on.way), on, chained};
    waiting_.push_back(list_of(on.in_lane, when == urgency::now ? urgent : speculative), p);
    return p;
  }
  /// In order of submission: what was submitted later goes behind it again.
  void insert_urgent(copy_id p) noexcept {
    auto& c = copies_[index(p)];
    c.when = urgency::now;
    const auto list = list_of(c.on.in_lane, urgent);
    auto later = waiting_.front(list);
    while (later != no_copy && copies_[index(later)].order < c.order) later = waiting_.after(later);
    waiting_.push_back(list, p);
    while (later != no_copy && later != p) {
      const auto next = waiting_.after(later);
      waiting_.move_to_back(list, later);
      later = next;
    }
  }
  void remove(copy_id p) noexcept {
    if (copies_[index(p)].chained) --chained_;
    waiting_.erase(p);
    free_.push_back(p);
  }

  // --- the link
  /// Carries on until the next end or giving way of a copy. False: there is none until `until`.
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
      // All ends of a time come before its beginnings: one may let something begin on the other lane.
      do {
        end_run(*first.on, first.at);
        first = first_stop();
      } while (first.on != nullptr && first.at.time == now_);
      return true;
    }
  }
  struct stop {
    ticks time = 0;
    std::uint64_t chunks = 0;  ///< of the copy, carried by then
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
  /// On every lane that carries nothing. Returns when something else may begin: what begins at `until` is decided
  /// later, for more may be submitted by then.
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
      for (auto p = waiting_.front(list_of(n, when)); p != no_copy; p = waiting_.after(p)) {
        const auto ready = std::max(copies_[index(p)].ready, now_);
        if (ready == now_ && now_ < until) {
          begin_run(lanes_[n], p);
          return never;
        }
        earliest = std::min(earliest, ready);
      }
    return earliest;
  }
  void begin_run(lane& on, copy_id p) noexcept {
    auto& c = copies_[index(p)];
    on.running = p;
    on.run_begin = now_;
    on.run_end = now_ + c.whole.time;
    if (c.chunks != 0) on.run_end -= link_of(c).time_until(c.whole.bytes, c.chunks);
    if (c.chunks != 0) return;
    if (auto* const e = find(c.batch)) e->started = true;
  }
  /// The end of the copy that runs, or the border at which one that goes before it may start.
  [[nodiscard]] stop next_stop(const lane& on) const noexcept {
    const auto& c = copies_[index(on.running)];
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
    if (time >= on.run_end) return {on.run_end, c.whole.chunks};  // the rest takes no time
    return {time, chunks};
  }
  [[nodiscard]] ticks earliest_before(std::size_t list, copy_id end) const noexcept {
    auto earliest = never;
    for (auto p = waiting_.front(list); p != end; p = waiting_.after(p))
      earliest = std::min(earliest, copies_[index(p)].ready);
    return earliest;
  }
  void end_run(lane& on, const stop& at) noexcept {
    const auto p = std::exchange(on.running, no_copy);
    auto& c = copies_[index(p)];
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
    remove(p);
    if (!settles) return carried_beside(p);
    auto& e = place(batch);
    if (--e.left == 0) settle(e, transfer_state::arrived);
  }

  std::size_t layers_;
  std::vector<entry> entries_;
  lost_tickets lost_;
  std::vector<way> ways_{};  ///< the first one is that of fills
  std::vector<lane> lanes_;
  std::size_t copies_per_fill_;
  std::vector<copy> copies_;
  std::vector<copy_id> free_{};
  /// Copies in order of submission, a list per lane and urgency; one that runs stays in it.
  basic_recency_list<copy_id> waiting_;
  link_observer* watcher_ = nullptr;
  ticket last_ = no_ticket;
  std::uint64_t order_ = 0;
  std::size_t chained_ = 0;  ///< copies after a batch that has not settled
  ticks now_ = 0;
};

static_assert(is_transfer_backend<clock_backend>());

}  // namespace hotset
