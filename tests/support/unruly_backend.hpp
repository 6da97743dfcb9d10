// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A backend without threads with every permitted behaviour of a transfer backend, at times that a seed chooses.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "event_trail.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/transfer/transfer_backend.hpp"
#include "random_source.hpp"
#include "watched_allocations.hpp"

namespace hotset::support {

/// Content of a slot: version and precision of one expert; no_key while it is not exactly one.
struct slot_bytes {
  expert_key key = no_key;
  precision_id precision{};
  std::uint32_t version = 0;
  friend bool operator==(const slot_bytes&, const slot_bytes&) = default;
};

/// Copies begin and end in any order that their readers permit; the stream runs when its fences permit. Both happen
/// during calls, in `wait`, or on the test's request. Fills, fences and cancels are refused, and copies fail, at
/// rates set by its habits. Detected faults: two copies in one slot, a copy that overtakes an older one of its slot,
/// waits that never end.
class unruly_backend {
 public:
  /// One stream; the backend stores its commands.
  struct stream_type {};
  using kernel_id = std::size_t;

  /// Each happens once in this many times; 0: never.
  struct habits {
    std::uint64_t take_nothing = 0;   ///< fills of a submit
    std::uint64_t take_part = 0;      ///< a prefix of the fills
    std::uint64_t fail = 0;           ///< batches with a copy that never arrives
    std::uint64_t refuse_fence = 0;   ///< whatever the copies do
    std::uint64_t refuse_cancel = 0;  ///< copies that have not begun
    std::uint64_t pause = 2;  ///< 1: nothing happens during a call; n: n - 1 events on average
    bool caller = false;  ///< the stream is the calling thread: fences wait, kernels run at once
  };

  unruly_backend(const geometry& shape, std::size_t slots, random_source& random,
                 event_trail& trail)
      : content(slots),
        version(shape.keys(), 0),
        disputed(slots, 0),
        shape_(shape),
        random_(random),
        trail_(trail),
        batches_(1),
        last_copy_(slots, no_ticket) {}

  habits habit{};
  std::vector<slot_bytes> content;     ///< by slot
  std::vector<std::uint32_t> version;  ///< by key: version of the host's bytes
  std::function<void(kernel_id)> on_kernel{};
  /// Reasons for a call to return fill_failed: awaited copies that were refused or have failed.
  std::uint64_t reasons = 0;
  std::uint64_t fenced_too_late = 0;  ///< the operation that fenced demand copies after they failed
  /// By slot: an awaited copy into it has failed; the test resets it.
  std::vector<std::uint8_t> disputed;

  // --- called by a cache
  submission submit(std::span<const fill> fills, stream_type&, urgency when) noexcept {
    const unwatched_allocations mine;
    go_on();
    const auto taken = take(fills.size());
    // A refused prefetch waits; a visit or a warm start fails.
    if (taken < fills.size() && !fills.front().speculative) ++reasons;
    if (taken == 0) {
      trail_.note("submit: all of % refused", fills.size());
      return {};
    }
    const auto id = open(
        {.left = taken, .awaited = when == urgency::now, .speculative = fills.front().speculative});
    const bool failing = happens(habit.fail);
    const auto surely = random_.below(taken);
    for (std::size_t i = 0; i < taken; ++i) {
      const bool fails = failing && (i == surely || random_.one_in(3));
      jobs_.push_back({fills[i], id, ++order_, fails, false});
      batches_[id].slots.push_back(fills[i].slot);
      last_copy_[static_cast<std::size_t>(fills[i].slot)] = id;
      trail_.note(fails ? "submit %: expert %.% to slot % after %, will fail"
                        : "submit %: expert %.% to slot % after %",
                  id, fills[i].key.layer, fills[i].key.expert, fills[i].slot, fills[i].after);
    }
    if (taken < fills.size()) trail_.note("submit %: % refused", id, fills.size() - taken);
    return {id, taken};
  }
  void promote(ticket) noexcept { go_on(); }
  bool cancel(ticket t) noexcept {
    const unwatched_allocations mine;
    go_on();
    auto& b = batches_[t];
    if (b.state != transfer_state::pending || b.begun || happens(habit.refuse_cancel)) return false;
    std::erase_if(jobs_, [t](const job& j) { return j.batch == t; });
    b.state = transfer_state::cancelled;
    trail_.note("cancelled %", t);
    return true;
  }
  status fence(stream_type&, ticket t) noexcept {
    const unwatched_allocations mine;
    go_on();
    if (happens(habit.refuse_fence)) {
      ++reasons;
      trail_.note("fence of % refused", t);
      return status::fill_failed;
    }
    batches_[t].awaited = true;
    if (habit.caller) return wait(t) == transfer_state::arrived ? status::ok : status::fill_failed;
    if (state(t) == transfer_state::failed) {
      if (random_.one_in(2)) return status::fill_failed;
      if (!batches_[t].speculative) fenced_too_late = trail_.operations();
    }
    commands_.push_back({t, false, 0});
    return status::ok;
  }
  ticket record(stream_type&) noexcept {
    const unwatched_allocations mine;
    go_on();
    if (commands_.empty()) return no_ticket;
    const auto reader = open({.reader = true});
    commands_.push_back({reader, true, 0});
    return reader;
  }
  [[nodiscard]] transfer_state poll(ticket t) noexcept {
    if (t != no_ticket) go_on();
    return state(t);
  }
  transfer_state wait(ticket t) noexcept {
    const unwatched_allocations mine;
    while (state(t) == transfer_state::pending && !trail_.failed())
      if (!(habit.pause == 1 ? hurry(t) : act()) && !act_at_all())
        trail_.fault("ticket " + std::to_string(t) + " never ends");
    return state(t);
  }

  // --- called by the test
  /// Enqueues a kernel; `on_kernel` is called when it runs.
  void launch(kernel_id kernel) {
    if (habit.caller && commands_.empty()) return on_kernel(kernel);
    commands_.push_back({no_ticket, false, kernel + 1});
  }
  /// Performs one random action, or none.
  bool act() {
    if (jobs_.empty() && commands_.empty()) return false;
    const auto at = random_.below(jobs_.size() + 1);
    return at < jobs_.size() ? move(at) : step();
  }
  /// Acts like a device synchronisation of the stream.
  void run_stream() {
    while (!commands_.empty() && !trail_.failed())
      if (!act() && !act_at_all()) trail_.fault("the stream never ends");
  }
  [[nodiscard]] std::size_t copies_under_way() const noexcept { return jobs_.size(); }
  [[nodiscard]] bool is_disputed(slot_id slot) const {
    return disputed[static_cast<std::size_t>(slot)] != 0;
  }
  /// Whether the stream waits for the last copy into the slot.
  [[nodiscard]] bool is_awaited(slot_id slot) const {
    const auto& b = batches_[last_copy_[static_cast<std::size_t>(slot)]];
    return b.awaited && b.state == transfer_state::pending;
  }
  /// Marks all failures as known to the engine.
  void forget_failures() {
    reasons = 0;
    std::ranges::fill(disputed, std::uint8_t{0});
  }
  [[nodiscard]] slot_bytes& bytes(slot_id slot) { return content[static_cast<std::size_t>(slot)]; }
  /// The host's bytes of an expert, as a copy brings them.
  [[nodiscard]] slot_bytes host_bytes(expert_key key, precision_id precision) const {
    return {key, precision, version[shape_.index(key)]};
  }

 private:
  struct batch {
    transfer_state state = transfer_state::pending;
    std::size_t left = 0;
    std::size_t lost = 0;
    std::vector<slot_id> slots{};
    bool begun = false;
    bool awaited = false;
    bool speculative = false;
    bool reader = false;
  };
  struct job {
    fill what{};
    ticket batch = no_ticket;
    std::uint64_t order = 0;  ///< of submission
    bool fails = false;
    bool moving = false;
  };
  /// A fence, the end of a reader, or a kernel (its id + 1).
  struct command {
    ticket t = no_ticket;
    bool reader = false;
    kernel_id kernel = 0;
  };

  [[nodiscard]] bool happens(std::uint64_t one_in) noexcept {
    return one_in != 0 && random_.one_in(one_in);
  }
  [[nodiscard]] std::size_t take(std::size_t fills) noexcept {
    if (fills == 0 || happens(habit.take_nothing)) return 0;
    return happens(habit.take_part) ? random_.below(fills) : fills;
  }
  ticket open(const batch& b) {
    batches_.push_back(b);
    return batches_.size() - 1;
  }
  [[nodiscard]] transfer_state state(ticket t) const noexcept {
    return t == no_ticket ? transfer_state::arrived : batches_[t].state;
  }
  void go_on() noexcept {
    const unwatched_allocations mine;
    while (!random_.one_in(habit.pause)) act();
  }
  /// Runs only what the ticket waits for. A wait that leads back to itself never ends.
  bool hurry(ticket t, std::size_t steps = 0) {
    if (steps > jobs_.size() + commands_.size()) return false;
    if (batches_[t].reader)
      return step() || (!commands_.empty() && hurry(commands_.front().t, steps + 1));
    for (std::size_t at = 0; at < jobs_.size(); ++at)
      if (jobs_[at].batch == t) return move(at) || hurry(jobs_[at].what.after, steps + 1);
    return false;
  }
  bool act_at_all() {
    for (std::size_t at = 0; at < jobs_.size(); ++at)
      if (move(at)) return true;
    return step();
  }

  /// A copy begins or ends. Returns false if it must wait.
  bool move(std::size_t at) {
    auto& j = jobs_[at];
    if (!j.moving) {
      if (state(j.what.after) == transfer_state::pending) return false;
      check_slot_is_ours(j);
      j.moving = true;
      batches_[j.batch].begun = true;
      // A failed copy may have written nothing, a part, or all but the end.
      if (!j.fails || random_.one_in(2)) bytes(j.what.slot) = {};
      return true;
    }
    if (!j.fails) bytes(j.what.slot) = host_bytes(j.what.key, j.what.precision);
    const auto done = j;
    jobs_.erase(jobs_.begin() + static_cast<std::ptrdiff_t>(at));
    end(done);
    return true;
  }
  void check_slot_is_ours(const job& mine) {
    for (const auto& other : jobs_)
      if (other.what.slot == mine.what.slot && (other.moving || other.order < mine.order))
        trail_.fault("copy " + std::to_string(mine.batch) + " begins in slot " +
                     to_string(mine.what.slot) + " while copy " + std::to_string(other.batch) +
                     (other.moving ? " moves there" : ", an older one, has not been made"));
  }
  void end(const job& j) {
    auto& b = batches_[j.batch];
    b.lost += j.fails ? 1U : 0U;
    trail_.note(j.fails ? "copy % to slot % failed" : "copy % to slot % ended", j.batch,
                j.what.slot);
    if (--b.left != 0) return;
    b.state = b.lost != 0 ? transfer_state::failed : transfer_state::arrived;
    // A batch fails as a whole. If no call waits for it, no call has to report it.
    if (b.lost == 0 || !b.awaited) return;
    reasons += b.slots.size();
    for (const auto slot : b.slots) disputed[static_cast<std::size_t>(slot)] = 1;
  }
  /// Runs the stream's next command. Returns false if it must wait or the stream is empty.
  bool step() {
    if (commands_.empty()) return false;
    const auto next = commands_.front();
    if (next.kernel == 0 && !next.reader && state(next.t) == transfer_state::pending) return false;
    commands_.pop_front();
    if (next.reader) batches_[next.t].state = transfer_state::arrived;
    if (next.kernel != 0) {
      trail_.note("kernel % runs", next.kernel - 1);
      on_kernel(next.kernel - 1);
    }
    return true;
  }

  const geometry& shape_;
  random_source& random_;
  event_trail& trail_;
  std::vector<batch> batches_;     ///< by ticket; the first belongs to no_ticket
  std::vector<ticket> last_copy_;  ///< by slot
  std::vector<job> jobs_;          ///< in order of submission
  std::deque<command> commands_;
  std::uint64_t order_ = 0;
};
static_assert(transfer_backend<unruly_backend>);

}  // namespace hotset::support
