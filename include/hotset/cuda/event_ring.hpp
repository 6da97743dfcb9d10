// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Tickets of a device backend. Each has its own event in a ring; an event is reused only after it has passed.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "hotset/core/error.hpp"
#include "hotset/core/fill.hpp"
#include "hotset/cuda/runtime.hpp"
#include "hotset/cuda/stream.hpp"
#include "hotset/transfer/ticket_board.hpp"

namespace hotset::cuda {

/// A ticket is opened, then recorded on a stream or settled without one. It arrives when the stream passes its event.
/// A ticket older than the ring has arrived unless `lost_tickets` holds its failure: failures are never forgotten.
/// Threads: safe, except that only one thread may call `open` and `oldest`.
class event_ring {
 public:
  /// `failures` must outlive the ring and receives every failed call.
  /// Errors: a ring of 0 places; those of the runtime (no event is leaked).
  static result<event_ring> create(runtime& api, int device, std::size_t places,
                                   sticky_failure& failures) {
    if (places == 0) return error{"an event ring of 0 places, accepted: 1 or more"};
    auto events = create_events(api, device, places);
    if (!events) return events.error();
    event_ring made(api, places, failures);
    for (std::size_t i = 0; i < places; ++i) made.entries_[i].event = std::move((*events)[i]);
    return made;
  }

  /// Returns a new ticket, or no_ticket while the oldest ticket of the ring is pending.
  ticket open() noexcept {
    auto& next = at(last_ + 1);
    const auto before = next.now.load(std::memory_order_acquire);
    const auto state = state_of(next, before);
    if (state == transfer_state::pending) return no_ticket;
    if (state != transfer_state::arrived) leave(ticket_of(before), state);
    change(next, word_of(++last_, phase::opened));
    return last_;
  }
  /// The ticket arrives when `stream` has run all work enqueued so far. Pre: opened, neither recorded nor settled.
  void record(ticket t, stream_handle stream) noexcept {
    auto& e = at(t);
    const bool ok = failures_.note(api_.record_event(e.event.get(), stream), "cudaEventRecord");
    change(e, word_of(t, ok ? phase::recorded : phase::failed));
  }
  /// Pre: opened, neither recorded nor settled.
  void settle(ticket t, transfer_state state) noexcept {
    change(at(t), word_of(t, state == transfer_state::arrived     ? phase::arrived
                             : state == transfer_state::cancelled ? phase::cancelled
                                                                  : phase::failed));
  }

  [[nodiscard]] transfer_state poll(ticket t) noexcept {
    const auto seen = look(t);
    if (ticket_of(seen) != t) return state_of_past(t);
    const auto state = state_of(at(t), seen);
    // If the place was reused during the query, `state` may be about the next ticket.
    return ticket_of(look(t)) == t ? state : state_of_past(t);
  }
  /// Returns false while the ticket's event is in no stream, so that no stream can wait for it.
  [[nodiscard]] bool is_recorded(ticket t) const noexcept {
    return look(t) != word_of(t, phase::opened);
  }
  /// Blocks until another thread has recorded or settled the ticket.
  void wait_until_recorded(ticket t) const noexcept {
    at(t).now.wait(word_of(t, phase::opened), std::memory_order_acquire);
  }
  /// Blocks until the device has passed the ticket's event. Pre: is_recorded(t).
  transfer_state wait(ticket t) noexcept {
    if (poll(t) != transfer_state::pending) return poll(t);
    const bool ok =
        failures_.note(api_.synchronize_event(at(t).event.get()), "cudaEventSynchronize");
    end(at(t), word_of(t, phase::recorded), ok ? phase::arrived : phase::failed);
    return poll(t);
  }
  /// Work enqueued on `stream` after this call starts after the ticket has arrived. Pre: is_recorded(t).
  bool fence(stream_handle stream, ticket t) noexcept {
    if (poll(t) != transfer_state::pending) return true;
    return failures_.note(api_.wait_event(stream, at(t).event.get()), "cudaStreamWaitEvent");
  }
  /// Waits for every recorded ticket.
  void drain() noexcept {
    for (std::size_t i = 0; i < places_; ++i) {
      const auto t = ticket_of(entries_[i].now.load(std::memory_order_acquire));
      if (is_recorded(t)) (void)wait(t);
    }
  }
  /// Ticket whose place the next ticket takes.
  [[nodiscard]] ticket oldest() const noexcept {
    return ticket_of(at(last_ + 1).now.load(std::memory_order_acquire));
  }

 private:
  enum class phase : std::uint8_t { arrived, opened, recorded, failed, cancelled };
  /// Ticket and phase of a place in one word: a thread that still polls the place's previous ticket cannot change it.
  using word = std::uint64_t;
  struct entry {
    owned_event event;
    std::atomic<word> now{0};
  };

  /// Outcomes of tickets whose places were reused.
  struct past {
    explicit past(std::size_t places) : lost(places) {}
    std::mutex mutex;
    lost_tickets lost;
    std::atomic<bool> any{false};  ///< false: nothing was lost, so the mutex is not needed
  };

  event_ring(runtime& api, std::size_t places, sticky_failure& failures)
      : api_(api),
        failures_(failures),
        entries_(new entry[places]),
        places_(places),
        past_(std::make_unique<past>(places)) {}

  [[nodiscard]] static word word_of(ticket t, phase p) noexcept {
    return t * 8 + static_cast<word>(p);
  }
  [[nodiscard]] static ticket ticket_of(word w) noexcept { return w / 8; }
  [[nodiscard]] static phase phase_of(word w) noexcept { return static_cast<phase>(w % 8); }

  void leave(ticket t, transfer_state state) noexcept {
    const std::lock_guard lock(past_->mutex);
    past_->lost.leave(t, state);
    past_->any.store(true, std::memory_order_release);
  }
  [[nodiscard]] transfer_state state_of_past(ticket t) const noexcept {
    if (!past_->any.load(std::memory_order_acquire)) return transfer_state::arrived;
    const std::lock_guard lock(past_->mutex);
    return past_->lost.state(t);
  }
  [[nodiscard]] entry& at(ticket t) const noexcept {
    return entries_[static_cast<std::size_t>(t) % places_];
  }
  [[nodiscard]] word look(ticket t) const noexcept {
    return at(t).now.load(std::memory_order_acquire);
  }
  static void change(entry& e, word to) noexcept {
    e.now.store(to, std::memory_order_release);
    e.now.notify_all();
  }
  static void end(entry& e, word from, phase to) noexcept {
    e.now.compare_exchange_strong(from, word_of(ticket_of(from), to), std::memory_order_acq_rel);
  }
  /// `seen`: content of the place when it was read.
  transfer_state state_of(entry& e, word seen) noexcept {
    switch (phase_of(seen)) {
      case phase::arrived: return transfer_state::arrived;
      case phase::opened: return transfer_state::pending;
      case phase::failed: return transfer_state::failed;
      case phase::cancelled: return transfer_state::cancelled;
      case phase::recorded: break;
    }
    const auto code = api_.query_event(e.event.get());
    if (is_open_answer(code)) return transfer_state::pending;
    const bool ok = failures_.note(code, "cudaEventQuery");
    end(e, seen, ok ? phase::arrived : phase::failed);
    return ok ? transfer_state::arrived : transfer_state::failed;
  }

  runtime& api_;
  sticky_failure& failures_;
  std::unique_ptr<entry[]> entries_;
  std::size_t places_;
  ticket last_ = no_ticket;
  std::unique_ptr<past> past_;
};

}  // namespace hotset::cuda
