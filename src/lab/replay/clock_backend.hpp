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
/// Weights are read-only, so a victim's slot can be filled at once. A system that copies victims back is modelled by
/// `write_back`: the victim's copy back starts as the fill would have, and the fill starts when it has ended; one that
/// `write_back()` announced is a copy by itself, whose ticket the slot's next fill names. `serial`: both ways share the
/// link; `duplex`: the way back is a link of its own, with the same discipline. While one of `spares` slots is free a
/// fill takes it and waits for nothing; a victim's slot that is copied back is then a spare one.
/// A fill that is cancelled takes its victim's copy back with it.
///
/// A fence must know at once when its batch arrives, so it runs the link ahead of the host. What the host submits
/// afterwards cannot change what was run: demand goes first and in order of submission, so nothing submitted later
/// overtakes the demand that is fenced, and while the link carries demand, later copies of any kind would wait anyway.
/// The link is ahead of a later copy only where fenced demand waits for a reader while speculation fills the gap,
/// or where speculation is fenced that was not promoted; that copy then starts no earlier than the link's time.

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
  virtual void on_copy(ticks begin, ticks end, const fill& what, urgency when,
                       std::uint64_t bytes) noexcept = 0;
  /// A stream stood still in a fence.
  virtual void on_wait(ticks begin, ticks end) noexcept = 0;
  /// As on_copy, of a victim that is copied back.
  virtual void on_write_back(ticks /*begin*/, ticks /*end*/, expert_key /*what*/,
                             std::uint64_t /*bytes*/) noexcept {}

 protected:
  ~link_observer() = default;
};

/// How victims are copied back before their slots are filled.
enum class write_back_way : std::uint8_t { none, serial, duplex };

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
    write_back_way write_back = write_back_way::none;
    /// Times of the way back; not instant where there is one.
    link_model back = link_model::instant();
    std::size_t spares = 0;  ///< slots beside the cache's, for fills whose victim is copied back

    [[nodiscard]] validation validate() const {
      if (auto bad = shape.validate()) return bad;
      if (most_fills < 1 || most_fills > limit)
        return error{"most_fills = " + std::to_string(most_fills) + ", accepted: 1.." +
                     std::to_string(limit)};
      if (ring < 1 || ring > limit)
        return error{"ring = " + std::to_string(ring) + ", accepted: 1.." + std::to_string(limit)};
      if (write_back != write_back_way::none && (link.is_instant() || back.is_instant()))
        return error{
            "a link on which nothing takes time, accepted: a bandwidth both ways where victims are "
            "copied back"};
      if (spares > limit)
        return error{"spares = " + std::to_string(spares) + ", accepted: 0.." +
                     std::to_string(limit)};
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

  /// Why a cache of `layout` cannot be timed by this clock: it would ask for copies whose bytes are not known here.
  [[nodiscard]] validation check(const pool_layout& layout) const {
    const auto& shape = layout.shape();
    const auto layers = shape.layer_count();
    if (layers != layers_ || shape.precisions() * layers > costs_.size())
      return error{"a clock for " + std::to_string(layers_) + " layers in " +
                   std::to_string(costs_.size() / layers_) +
                   " precisions, accepted: " + std::to_string(layers) + " in " +
                   std::to_string(shape.precisions()) + ", those of the cache"};
    for (std::size_t p = 0; p < shape.precisions(); ++p)
      for (std::size_t l = 0; l < layers; ++l) {
        const auto timed = costs_[p * layers + l].bytes;
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
    const auto room = link_.is_instant() || waits ? fills.size() : free_.size() / copies_per_fill();
    if (fills.empty() || room == 0) return {};
    auto* const e = waits ? wait_to_open() : open();
    if (e == nullptr) return {};
    const submission out{e->id, std::min(room, fills.size())};
    if (link_.is_instant())
      arrive_at_once(*e, fills, when);
    else
      enqueue(*e, fills.first(out.accepted), when);
    if (now_ != begin) stream.issue_at(now_);  // it had to wait
    return out;
  }
  void promote(ticket t) noexcept {
    for (std::size_t way = 0; way < lanes_.size(); ++way)
      for (auto p = waiting_.front(list_of(way, speculative)); p != no_copy;) {
        const auto next = waiting_.after(p);
        if (copies_[index(p)].batch == t) {
          waiting_.erase(p);
          insert_urgent(p);
        }
        p = next;
      }
  }
  /// A victim is copied back ahead of its slot's next fill, which names the ticket as its `after`; `after`: the slot's last
  /// reader. no_ticket: nothing is copied back here. Pre: the model has the key and the precision.
  ticket write_back(expert_key key, precision_id precision, ticket after,
                    clock_stream& stream) noexcept {
    if (mode_ == write_back_way::none) return no_ticket;
    advance(stream.host());
    const auto begin = now_;
    auto& e = *wait_to_open();
    e.left = 1;
    make_room(1);
    const auto p =
        take(out_, {.key = key, .precision = precision, .after = after}, e.id, urgency::soon);
    copies_[index(p)].settles = true;
    if (now_ != begin) stream.issue_at(now_);
    return e.id;
  }
  /// False on an instant link: whatever was submitted has begun.
  bool cancel(ticket t) noexcept {
    auto* const e = find(t);
    if (e == nullptr || e->state != transfer_state::pending || e->started) return false;
    for (std::size_t list = 0; list < lists(); ++list)
      for (auto p = waiting_.front(list); p != no_copy;) {
        const auto next = waiting_.after(p);
        if (copies_[index(p)].batch == t) give_up(p);
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
  [[nodiscard]] std::uint64_t bytes_moved() const noexcept { return moved_.bytes; }
  /// Time that the link has been carrying fills, in runs of chunks that are over.
  [[nodiscard]] ticks busy() const noexcept { return moved_.time; }
  /// The same of victims on their way back.
  [[nodiscard]] std::uint64_t bytes_moved_back() const noexcept { return moved_back_.bytes; }
  [[nodiscard]] ticks busy_back() const noexcept { return moved_back_.time; }
  /// `observer` outlives the backend or is replaced; nullptr: nobody watches.
  void watch(link_observer* observer) noexcept { watcher_ = observer; }

 private:
  struct unchecked {};
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
  struct copy {
    fill what{};
    ticket batch = no_ticket;
    std::uint64_t order = 0;   ///< of submission
    ticks ready = 0;           ///< never: after a batch, or a copy back, that has not ended
    std::uint64_t chunks = 0;  ///< carried
    urgency when = urgency::now;
    cost whole{};
    std::uint8_t way = 0;     ///< the lane
    bool back = false;        ///< of a victim
    bool settles = false;     ///< its batch has arrived when it and the others have
    bool waits_back = false;  ///< a fill: for its victim's copy back
    /// Of a copy back: the fill that waits for it; none: the slot is a spare one afterwards.
    copy_id then = no_copy;
  };
  /// One way of the link.
  struct lane {
    copy_id running = no_copy;
    ticks run_begin = 0;
    ticks run_end = 0;
  };
  struct carried {
    std::uint64_t bytes = 0;
    ticks time = 0;
  };
  struct entry {
    ticket id = no_ticket;
    ticks time = 0;  ///< of its end; `never` while nobody knows it
    std::size_t left = 0;
    transfer_state state = transfer_state::arrived;
    bool started = false;
  };
  struct stop {
    ticks time = 0;
    std::uint64_t chunks = 0;  ///< of the copy, carried by then
  };

  clock_backend(const config& setup, unchecked)
      : link_(setup.link),
        layers_(setup.shape.layer_count()),
        entries_(std::bit_ceil(setup.ring)),
        lost_(entries_.size()),
        mode_(setup.write_back),
        back_(setup.back),
        spares_(setup.spares),
        lanes_(mode_ == write_back_way::duplex ? 2 : 1),
        out_(lanes_.size() - 1),
        copies_(setup.link.is_instant() ? 0 : setup.most_fills * copies_per_fill()),
        waiting_(copies_.size(), lists()) {
    for (std::size_t p = 0; p < setup.shape.precisions(); ++p)
      for (const auto l : each<layer_id>(setup.shape.layers)) {
        const auto bytes = setup.shape.bytes_of(l, static_cast<precision_id>(p));
        costs_.push_back({bytes, link_.chunks_of(bytes), link_.time_of(bytes)});
        back_costs_.push_back({bytes, back_.chunks_of(bytes), back_.time_of(bytes)});
      }
    for (auto p = copies_.size(); p-- > 0;) free_.push_back(static_cast<copy_id>(p));
  }

  static std::size_t index(copy_id p) noexcept { return static_cast<std::size_t>(p); }
  static std::size_t list_of(std::size_t way, std::size_t when) noexcept { return way * 2 + when; }
  [[nodiscard]] std::size_t lists() const noexcept { return lanes_.size() * 2; }
  [[nodiscard]] std::size_t copies_per_fill() const noexcept {
    return mode_ == write_back_way::none ? 1 : 2;
  }
  [[nodiscard]] const cost& cost_of(const fill& f, bool back = false) const noexcept {
    const auto at = index_of(f.precision) * layers_ + index_of(f.key.layer);
    HOTSET_ASSERT(at < costs_.size());
    return back ? back_costs_[at] : costs_[at];
  }
  [[nodiscard]] const link_model& link_of(const copy& c) const noexcept {
    return c.back ? back_ : link_;
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
        if (auto& c = copies_[index(p)];
            c.ready == never && !c.waits_back && c.what.after == e.id) {
          c.ready = now_;
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
      moved_.bytes += bytes;
      if (watcher_ != nullptr) watcher_->on_copy(at, at, f, when, bytes);
    }
  }
  void enqueue(entry& e, std::span<const fill> fills, urgency when) noexcept {
    e.left = fills.size();
    for (const auto& f : fills) {
      make_room(copies_per_fill());  // demand waits for it
      const bool evicts = mode_ != write_back_way::none && f.victim != no_key;
      const auto p = evicts ? take_with_victim(f, e.id, when) : take(0, f, e.id, when);
      copies_[index(p)].settles = true;
    }
  }
  void make_room(std::size_t count) noexcept {
    while (free_.size() < count) (void)step(never);
  }
  /// A copy of its own, at the end of a lane's list.
  copy_id take(std::size_t way, const fill& f, ticket batch, urgency when) noexcept {
    const auto p = free_.back();
    free_.pop_back();
    const bool back = f.slot == no_slot;
    const auto ready = ready_after(f.after);
    if (ready == never) ++chained_;
    if (ready == never && when == urgency::now && mode_ != write_back_way::none) promote(f.after);
    auto& c = copies_[index(p)] = {f, batch, ++order_, ready, 0, when, cost_of(f, back)};
    c.way = static_cast<std::uint8_t>(way);
    c.back = back;
    waiting_.push_back(list_of(way, when == urgency::now ? urgent : speculative), p);
    return p;
  }
  /// The victim's copy back, then the fill, which waits for it unless a spare slot is free.
  copy_id take_with_victim(const fill& f, ticket batch, urgency when) noexcept {
    const auto victim =
        take(out_, {.key = f.victim, .precision = f.precision, .after = f.after}, batch, when);
    auto alone = f;
    alone.after = no_ticket;
    const auto p = take(0, alone, batch, when);
    if (spares_ != 0) {
      --spares_;
      return p;
    }
    auto& c = copies_[index(p)];
    c.ready = never;
    c.waits_back = true;
    copies_[index(victim)].then = p;
    return p;
  }
  /// In order of submission: what was submitted later goes behind it again.
  void insert_urgent(copy_id p) noexcept {
    auto& c = copies_[index(p)];
    c.when = urgency::now;
    const auto list = list_of(c.way, urgent);
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
    const auto& c = copies_[index(p)];
    if (c.ready == never && !c.waits_back) --chained_;
    waiting_.erase(p);
    free_.push_back(p);
  }
  /// Of a batch of which nothing has begun. A fill that took a spare slot gives it back.
  void give_up(copy_id p) noexcept {
    const auto& c = copies_[index(p)];
    if (c.back && !c.settles && c.then == no_copy) ++spares_;
    remove(p);
  }
  /// A victim has been copied back: its slot goes to the fill that waits for it, or it is a spare one.
  void free_slot_of(const copy& victim) noexcept {
    if (victim.then != no_copy) return start(victim.then);
    for (const auto when : {urgent, speculative})
      for (auto p = waiting_.front(list_of(0, when)); p != no_copy; p = waiting_.after(p))
        if (copies_[index(p)].waits_back) {
          for (auto& other : copies_)
            if (other.then == p) other.then = no_copy;
          return start(p);
        }
    ++spares_;
  }
  void start(copy_id p) noexcept {
    copies_[index(p)].waits_back = false;
    copies_[index(p)].ready = now_;
  }

  // --- the link
  /// Carries on until the next end or giving way of a copy. False: there is none until `until`.
  bool step(ticks until) noexcept {
    for (;;) {
      const auto next = begin_what_may(until);
      auto first = first_stop();
      if (first.way == nullptr || first.at.time > next) {
        if (next >= until) return false;
        now_ = next;
        continue;
      }
      if (first.at.time > until) return false;
      // All ends of a time come before its beginnings: one may let something begin on the other lane.
      do {
        end_run(*first.way, first.at);
        first = first_stop();
      } while (first.way != nullptr && first.at.time == now_);
      return true;
    }
  }
  struct lane_stop {
    lane* way = nullptr;
    stop at{never, 0};
  };
  [[nodiscard]] lane_stop first_stop() noexcept {
    lane_stop first;
    for (auto& way : lanes_) {
      if (way.running == no_copy) continue;
      const auto at = next_stop(way);
      if (first.way == nullptr || at.time < first.at.time) first = {&way, at};
    }
    return first;
  }
  /// On every lane that carries nothing. Returns when something else may begin: what begins at `until` is decided later, for
  /// more may be submitted by then.
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
  void begin_run(lane& way, copy_id p) noexcept {
    auto& c = copies_[index(p)];
    way.running = p;
    way.run_begin = now_;
    way.run_end = now_ + c.whole.time;
    if (c.chunks != 0) way.run_end -= link_of(c).time_until(c.whole.bytes, c.chunks);
    if (c.chunks != 0) return;
    if (auto* const e = find(c.batch)) e->started = true;
  }
  /// The end of the copy that runs, or the border at which one that goes before it may start.
  [[nodiscard]] stop next_stop(const lane& way) const noexcept {
    const auto& c = copies_[index(way.running)];
    const auto& link = link_of(c);
    auto earliest = never;
    if (c.when != urgency::now) earliest = earliest_before(list_of(c.way, urgent), no_copy);
    earliest = std::min(
        earliest, earliest_before(list_of(c.way, c.when == urgency::now ? urgent : speculative),
                                  way.running));
    earliest = std::max(earliest, now_);
    if (earliest >= way.run_end) return {way.run_end, c.whole.chunks};
    const auto passed = link.time_until(c.whole.bytes, c.chunks);
    const auto chunks = link.chunks_by(c.whole.bytes, earliest - way.run_begin + passed);
    const auto time = way.run_begin + link.time_until(c.whole.bytes, chunks) - passed;
    if (time >= way.run_end) return {way.run_end, c.whole.chunks};  // the rest takes no time
    return {time, chunks};
  }
  [[nodiscard]] ticks earliest_before(std::size_t list, copy_id end) const noexcept {
    auto earliest = never;
    for (auto p = waiting_.front(list); p != end; p = waiting_.after(p))
      earliest = std::min(earliest, copies_[index(p)].ready);
    return earliest;
  }
  void end_run(lane& way, const stop& at) noexcept {
    const auto p = std::exchange(way.running, no_copy);
    auto& c = copies_[index(p)];
    const auto& link = link_of(c);
    const auto bytes =
        link.bytes_until(c.whole.bytes, at.chunks) - link.bytes_until(c.whole.bytes, c.chunks);
    c.chunks = at.chunks;
    now_ = at.time;
    auto& total = c.back ? moved_back_ : moved_;
    total.time += at.time - way.run_begin;
    total.bytes += bytes;
    tell(c, way.run_begin, bytes);
    if (at.chunks != c.whole.chunks) return;
    const auto done = c;
    remove(p);
    if (done.back && !done.settles) free_slot_of(done);
    if (!done.settles) return;
    auto& e = place(done.batch);
    if (--e.left == 0) settle(e, transfer_state::arrived);
  }
  void tell(const copy& c, ticks begin, std::uint64_t bytes) const noexcept {
    if (watcher_ == nullptr) return;
    if (c.back)
      watcher_->on_write_back(begin, now_, c.what.key, bytes);
    else
      watcher_->on_copy(begin, now_, c.what, c.when, bytes);
  }

  link_model link_;
  std::size_t layers_;
  std::vector<cost> costs_{};  ///< [precisions][layers]
  std::vector<cost> back_costs_{};
  std::vector<entry> entries_;
  lost_tickets lost_;
  write_back_way mode_;
  link_model back_;
  std::size_t spares_;  ///< free ones
  std::vector<lane> lanes_;
  std::size_t out_;  ///< the lane of copies back
  std::vector<copy> copies_;
  std::vector<copy_id> free_{};
  /// Copies in order of submission, a list per lane and urgency; one that runs stays in it.
  basic_recency_list<copy_id> waiting_;
  link_observer* watcher_ = nullptr;
  ticket last_ = no_ticket;
  std::uint64_t order_ = 0;
  std::size_t chained_ = 0;  ///< copies after a batch that has not settled
  ticks now_ = 0;
  carried moved_{};
  carried moved_back_{};
};

static_assert(is_transfer_backend<clock_backend>());

}  // namespace hotset
