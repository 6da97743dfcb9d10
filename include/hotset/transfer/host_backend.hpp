// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Copies experts into host slots on its own threads, chunk by chunk, demand before speculation.

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/platform/start_threads.hpp"
#include "hotset/transfer/expert_copy.hpp"
#include "hotset/transfer/expert_source.hpp"
#include "hotset/transfer/host_stream.hpp"
#include "hotset/transfer/memory/host_slot_bank.hpp"
#include "hotset/transfer/ticket_board.hpp"
#include "hotset/transfer/transfer_backend.hpp"
#include "hotset/transfer/transfer_observer.hpp"

namespace hotset {

/// Pace without delay: copies run at memory speed. Every pace has these members.
class unpaced {
 public:
  explicit unpaced(std::uint64_t chunk_bytes = std::uint64_t{1} << 20U) noexcept
      : chunk_bytes_(chunk_bytes) {}

  /// A time of the pace's clock.
  struct time {};
  static time now() noexcept { return {}; }
  /// Bytes after which another copy may run first; 0: copies are not interrupted.
  [[nodiscard]] std::uint64_t chunk_bytes() const noexcept { return chunk_bytes_; }
  /// Called after the thread was idle.
  void resume() noexcept {}
  /// Waits until the pace's time of a copied chunk has passed. The chunk starts at byte `from` of `total`. Returns
  /// that time in nanoseconds.
  std::uint64_t hold(time /*submitted*/, std::uint64_t /*from*/, std::uint64_t /*total*/) noexcept {
    return 0;
  }

 private:
  std::uint64_t chunk_bytes_;
};

/// A copy waits only for the last reader of its slot (`fill::after`). Before every chunk, a thread chooses the first
/// copy that may start: demand before speculation, each in order of submission. Several threads read several experts
/// in parallel from a source that waits, such as a disk.
/// A ticket arrives when every tensor of every fill of its batch is in place. A missing or mis-sized tensor fails the
/// batch. The source is queried again for every chunk.
/// Blocking: `record` and a `submit` of demand wait while the oldest ticket in the ring is pending. Demand waits for
/// room in a full queue; speculation is refused (`submission::accepted`). Running copies and readers end both waits,
/// so a reader must not wait for the submitting thread.
/// Threads: safe. No allocation after construction.
template <expert_origin Source, class Pace = unpaced>
class host_backend {
 public:
  using stream_type = host_stream;
  struct config {
    std::size_t most_fills = 4096;  ///< waiting at one time
    /// Use more than one for a source that waits and supports concurrent reads, such as files. Use one if the pace
    /// waits.
    std::size_t threads = 1;
    Pace pace{};
    /// Notified of copies and waits; it outlives the backend and its streams. Null: none.
    transfer_observer* observer = nullptr;

    static constexpr std::size_t most_threads = 256;

    [[nodiscard]] validation validate() const {
      if (most_fills == 0) return error{"most_fills = 0, accepted: 1 or more"};
      if (threads == 0 || threads > most_threads)
        return refusal("threads = ", threads, ", accepted: 1..", most_threads);
      return std::nullopt;
    }
  };

  /// Pre: `source` and `bank` outlive the backend. Errors: those of config; the system refuses a thread.
  static result<std::unique_ptr<host_backend>> create(const Source& source,
                                                      const host_slot_bank& bank,
                                                      const config& setup = {}) {
    if (auto bad = setup.validate()) return *std::move(bad);
    std::unique_ptr<host_backend> made(new host_backend(source, bank, setup, checked{}));
    if (auto refused = made->start(setup.threads)) return *std::move(refused);
    return made;
  }
#if HOTSET_EXCEPTIONS
  /// Same as `create`. Errors: throws invalid_config.
  host_backend(const Source& source, const host_slot_bank& bank, const config& setup = {})
      : host_backend(source, bank, setup, (require_valid(setup.validate()), checked{})) {
    require_valid(start(setup.threads));
  }
#endif
  host_backend(const host_backend&) = delete;
  host_backend& operator=(const host_backend&) = delete;
  /// Completes all submitted copies, then ends the threads.
  ~host_backend() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    board_->touch();
    for (auto& thread : threads_) thread.join();
  }

  submission submit(std::span<const fill> fills, host_stream&, urgency when) noexcept {
    if (fills.empty()) return {};
    return when == urgency::now ? submit_all(fills) : submit_what_fits(fills);
  }
  void promote(ticket t) noexcept {
    const std::lock_guard lock(mutex_);
    for (auto& waiting : jobs_)
      if (waiting.batch == t) waiting.when = urgency::now;
  }
  bool cancel(ticket t) noexcept {
    {
      const std::lock_guard lock(mutex_);
      const auto found = std::ranges::find(batches_, t, &batch::id);
      if (found == batches_.end() || found->started) return false;
      batches_.erase(found);
      std::erase_if(jobs_, [t](const job& j) { return j.batch == t; });
    }
    room_.notify_all();
    board_->settle(t, transfer_state::cancelled);
    return true;
  }
  status fence(host_stream& stream, ticket t) noexcept {
    return stream.wait_for(board_, t, observer_);
  }
  ticket record(host_stream& stream) noexcept {
    if (stream.is_caller()) return no_ticket;
    const auto t = board_->wait_to_open();
    stream.settle_after(board_, t);
    return t;
  }
  [[nodiscard]] validation check(const pool_layout& layout) const { return bank_.check(layout); }
  [[nodiscard]] transfer_state poll(ticket t) const noexcept { return board_->state(t); }
  transfer_state wait(ticket t) noexcept { return board_->wait(t); }
  /// Forwards to the source, see transfer/expert_source.hpp.
  template <class KeyOrLayer>
  void invalidate(KeyOrLayer what) const noexcept {
    copy_.invalidate(what);
  }
  /// Units: bytes copied since construction.
  [[nodiscard]] std::uint64_t bytes_moved() const noexcept {
    const std::lock_guard lock(mutex_);
    return bytes_moved_;
  }

  /// The pace's total time of all copied chunks. Units: nanoseconds.
  [[nodiscard]] std::uint64_t held() const noexcept {
    const std::lock_guard lock(mutex_);
    return held_;
  }

 private:
  struct job {
    fill what;
    ticket batch = no_ticket;
    std::uint64_t order = 0;  ///< position in the order of submission
    urgency when = urgency::now;
    std::uint64_t bytes = 0;  ///< bytes copied so far
    typename Pace::time submitted{};
    bool taken = false;  ///< a thread is copying a chunk of it
    // For the observer.
    observed_clock::time_point enqueued{};
    observed_clock::time_point begin{};
  };
  struct batch {
    ticket id = no_ticket;
    std::size_t left = 0;
    bool started = false;
    bool failed = false;
  };
  struct chunk {
    std::uint64_t bytes = 0;  ///< 0: the copy failed
    bool last = true;
    std::uint64_t time = 0;
  };

  struct checked {};
  /// Nothing is copied until the threads start.
  host_backend(const Source& source, const host_slot_bank& bank, const config& setup, checked)
      : copy_(source, bank),
        bank_(bank),
        most_fills_(setup.most_fills),
        pace_(setup.pace),
        observer_(setup.observer) {
    jobs_.reserve(most_fills_ + setup.threads);  // and the jobs being copied
    // One more batch: a submit may still have fills to enqueue for it.
    batches_.reserve(most_fills_ + setup.threads + 1);
  }
  /// Errors: the system refuses a thread; then this object can only be destroyed.
  [[nodiscard]] validation start(std::size_t threads) {
    return detail::start_threads(threads_, threads, [this] { loop(); });
  }

  /// Waits for room in a full queue, because a visit needs all of its demand copies. The copy threads make room.
  submission submit_all(std::span<const fill> fills) noexcept {
    const std::lock_guard one_at_a_time(demand_);
    const submission out{board_->wait_to_open(), fills.size()};
    for (auto rest = fills; !rest.empty();) {
      {
        std::unique_lock lock(mutex_);
        room_.wait(lock, [this] { return room() != 0; });
        if (rest.size() == fills.size()) batches_.push_back({out.id, fills.size(), false, false});
        const auto part = rest.first(std::min(room(), rest.size()));
        enqueue(part, out.id, urgency::now);
        rest = rest.subspan(part.size());
      }
      board_->touch();
    }
    return out;
  }
  submission submit_what_fits(std::span<const fill> fills) noexcept {
    submission out;
    {
      const std::lock_guard lock(mutex_);
      const auto taken = std::min(room(), fills.size());
      if (taken == 0 || (out.id = board_->open()) == no_ticket) return {};
      out.accepted = taken;
      batches_.push_back({out.id, taken, false, false});
      enqueue(fills.first(taken), out.id, urgency::soon);
    }
    board_->touch();
    return out;
  }
  [[nodiscard]] std::size_t room() const noexcept {
    const auto waiting = jobs_.size() - copying_;
    return most_fills_ - std::min(most_fills_, waiting);
  }
  void enqueue(std::span<const fill> fills, ticket of, urgency when) noexcept {
    const auto now = observed_now();
    for (const auto& f : fills)
      jobs_.push_back({f, of, ++order_, when, 0, pace_.now(), false, now, {}});
  }

  void loop() noexcept {
    std::unique_lock lock(mutex_);
    while (true) {
      const auto seen = board_->changes();
      const auto next = choose();
      if (next == jobs_.end()) {
        if (jobs_.empty() && stopping_) return;
        lock.unlock();
        board_->wait_for_change(seen);  // a reader has ended, or there are new copies
        lock.lock();
        pace_.resume();
        continue;
      }
      if (board_->changes() != seen) continue;  // a reader ended during the search
      next->taken = true;
      if (next->bytes == 0) next->begin = observed_now();
      const job taken = *next;
      std::ranges::find(batches_, taken.batch, &batch::id)->started = true;
      ++copying_;
      lock.unlock();
      room_.notify_one();
      const auto done = copy_chunk(taken);
      lock.lock();
      --copying_;
      take_in(taken, done);
    }
  }
  /// The first demand copy that may start, else the first speculative copy, else none.
  typename std::vector<job>::iterator choose() noexcept {
    for (const auto when : {urgency::now, urgency::soon})
      for (auto it = jobs_.begin(); it != jobs_.end(); ++it)
        if (it->when == when && may_start(*it)) return it;
    return jobs_.end();
  }
  /// True if no thread copies the job, no reader uses its slot, and no other copy writes to its slot.
  [[nodiscard]] bool may_start(const job& j) const noexcept {
    const auto is_in_the_way = [&](const job& other) {
      return other.taken && other.what.slot == j.what.slot;
    };
    return !j.taken && board_->state(j.what.after) != transfer_state::pending &&
           (copying_ == 0 || std::ranges::none_of(jobs_, is_in_the_way));
  }
  /// Copies the next chunk of an expert's bytes.
  [[nodiscard]] chunk copy_chunk(const job& j) noexcept {
    const auto [bytes, total] = copy_.copy(j.what, j.bytes, pace_.chunk_bytes());
    if (bytes == 0) return {};
    return {bytes, j.bytes + bytes == total, pace_.hold(j.submitted, j.bytes, total)};
  }
  void take_in(const job& taken, const chunk& done) noexcept {
    bytes_moved_ += done.bytes;
    held_ += done.time;
    const auto j = std::ranges::lower_bound(jobs_, taken.order, {}, &job::order);
    j->bytes += done.bytes;
    j->taken = false;
    if (!done.last) return;
    if (observer_ != nullptr)
      observer_->on_copy({j->what, j->batch, j->when, j->bytes, j->enqueued, j->begin,
                          observed_clock::now(), done.bytes != 0, board_.get()});
    jobs_.erase(j);
    const auto b = std::ranges::find(batches_, taken.batch, &batch::id);
    b->failed = b->failed || done.bytes == 0;
    if (--b->left != 0) return;
    const auto state = b->failed ? transfer_state::failed : transfer_state::arrived;
    batches_.erase(b);
    board_->settle(taken.batch, state);
  }

  [[nodiscard]] observed_clock::time_point observed_now() const noexcept {
    return observer_ != nullptr ? observed_clock::now() : observed_clock::time_point{};
  }

  expert_copy<Source> copy_;
  const host_slot_bank& bank_;
  std::size_t most_fills_;
  Pace pace_;
  transfer_observer* observer_;
  /// Shared with the streams that use its tickets.
  std::shared_ptr<ticket_board> board_ = std::make_shared<ticket_board>();
  std::mutex demand_;  ///< serialises submits of demand
  mutable std::mutex mutex_;
  std::condition_variable room_;
  std::vector<job> jobs_;  ///< in order of submission; jobs being copied stay in it
  std::vector<batch> batches_;
  std::uint64_t order_ = 0;
  std::size_t copying_ = 0;  ///< number of threads that copy a chunk
  std::uint64_t bytes_moved_ = 0;
  std::uint64_t held_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace hotset
