// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Threads that copy batches from pageable memory to a device, piece by piece through the staging ring.

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/fill.hpp"
#include "hotset/core/platform/start_threads.hpp"
#include "hotset/cuda/copies/pinned_memory.hpp"
#include "hotset/cuda/copies/staging_ring.hpp"
#include "hotset/cuda/event_ring.hpp"

namespace hotset::cuda {

/// Bytes that the CUDA runtime was asked to copy since construction, by path.
struct transfer_counts {
  std::uint64_t bytes_direct = 0;  ///< from page-locked memory
  std::uint64_t bytes_staged = 0;  ///< from pageable memory, through the staging ring
};

/// Demand overtakes speculation after every piece. Page-locked parts of a batch bypass staging. A copy takes no piece
/// before the last reader of its slot is done: a copy that waits in the ring would block the others.
/// Threads: safe. No allocation after construction.
class staged_copies {
 public:
  struct config {
    int device = 0;
    std::size_t pieces = 0;
    std::size_t piece_bytes = 0;
    std::size_t threads = 0;
    std::size_t most_copies = 0;  ///< most copies waiting at one time
  };

  /// `pages`, `events` and `failures` must outlive this object. Errors: sizes of 0; those of the runtime; the system
  /// refuses a thread.
  static result<std::unique_ptr<staged_copies>> create(runtime& api, const config& setup,
                                                       const pinned_memory& pages,
                                                       event_ring& events,
                                                       sticky_failure& failures) {
    if (setup.threads == 0) return error{"0 staging threads, accepted: 1 or more"};
    auto ring = staging_ring::create(api, setup.device, setup.pieces, setup.piece_bytes);
    if (!ring) return ring.error();
    std::unique_ptr<staged_copies> made(
        new (std::nothrow) staged_copies(api, setup, *std::move(ring), pages, events, failures));
    if (!made) return error{"no host memory for staged copies"};
    if (auto refused =
            detail::start_threads(made->workers_, setup.threads, [&own = *made] { own.work(); }))
      return *std::move(refused);
    return made;
  }
  staged_copies(const staged_copies&) = delete;
  staged_copies& operator=(const staged_copies&) = delete;
  /// Enqueues all submitted copies, then joins the threads.
  ~staged_copies() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    for (auto& worker : workers_) worker.join();
  }

  [[nodiscard]] bool has_room(std::size_t copies) const noexcept {
    const std::lock_guard lock(mutex_);
    return fits(copies);
  }
  /// Pre: at most `most_copies` copies; only the waiting thread submits.
  void wait_for_room(std::size_t copies) noexcept {
    std::unique_lock lock(mutex_);
    room_.wait(lock, [&] { return fits(copies); });
  }
  /// `t` is recorded on `stream` after the last copy. `readers[i]`: ticket that copy i waits for.
  /// Pre: has_room(copies.size()); copies not empty; the readers are recorded.
  void submit(ticket t, std::span<const copy_request> copies, std::span<const ticket> readers,
              stream_handle stream, urgency when) noexcept {
    {
      const std::lock_guard lock(mutex_);
      std::size_t pieces = 0;
      for (std::size_t i = 0; i < copies.size(); ++i) {
        copies_.push_back({copies[i], readers[i], t});
        pieces += (copies[i].bytes + ring_->piece_bytes() - 1) / ring_->piece_bytes();
      }
      batches_.push_back({t, stream, when, pieces, false});
    }
    changed_.notify_all();
  }
  void promote(ticket t) noexcept {
    const std::lock_guard lock(mutex_);
    if (const auto b = find(t); b != batches_.end()) b->when = urgency::now;
  }
  /// Cancels a batch if no part of it was begun. Returns whether it was cancelled.
  bool cancel(ticket t) noexcept {
    const std::lock_guard lock(mutex_);
    const auto b = find(t);
    if (b == batches_.end() || b->started) return false;
    std::erase_if(copies_, [t](const waiting& w) { return w.batch == t; });
    batches_.erase(b);
    room_.notify_all();
    events_.settle(t, transfer_state::cancelled);
    return true;
  }
  [[nodiscard]] transfer_counts counts() const noexcept {
    const std::lock_guard lock(mutex_);
    return counts_;
  }

 private:
  struct waiting {
    copy_request what{};  ///< rest of the copy
    ticket after = no_ticket;
    ticket batch = no_ticket;
  };
  struct batch {
    ticket id = no_ticket;
    stream_handle stream = nullptr;
    urgency when = urgency::now;
    std::size_t pieces = 0;  ///< pieces not yet enqueued
    bool started = false;
  };
  struct piece {
    copy_request what{};
    ticket batch = no_ticket;
    stream_handle stream = nullptr;
  };

  staged_copies(runtime& api, const config& setup, std::unique_ptr<staging_ring> ring,
                const pinned_memory& pages, event_ring& events, sticky_failure& failures)
      : api_(api),
        device_(setup.device),
        ring_(std::move(ring)),
        pages_(pages),
        events_(events),
        failures_(failures) {
    copies_.reserve(setup.most_copies);
    batches_.reserve(setup.most_copies);
  }

  using iterator = std::vector<waiting>::iterator;

  [[nodiscard]] bool fits(std::size_t copies) const noexcept {
    return copies <= copies_.capacity() - copies_.size() && batches_.size() < batches_.capacity();
  }
  void work() noexcept {
    // A new thread starts on device 0.
    (void)failures_.note(api_.set_device(device_), "cudaSetDevice");
    std::unique_lock lock(mutex_);
    while (true) {
      const auto next = choose();
      if (next != copies_.end()) {
        bring(take_piece(next), lock);
      } else if (copies_.empty() && stopping_) {
        return;
      } else if (copies_.empty() || watched_) {
        changed_.wait(lock);
      } else {
        watch(copies_.front().after, lock);
      }
    }
  }
  /// Returns the first demand copy whose slot is no longer read, else the first such speculative copy, else the end.
  iterator choose() noexcept {
    for (const auto when : {urgency::now, urgency::soon}) {
      const auto found = std::ranges::find_if(copies_, [&](const waiting& w) {
        return find(w.batch)->when == when && events_.poll(w.after) != transfer_state::pending;
      });
      if (found != copies_.end()) return found;
    }
    return copies_.end();
  }
  /// One thread waits for a reader; the others stay free for new copies.
  void watch(ticket reader, std::unique_lock<std::mutex>& lock) noexcept {
    watched_ = true;
    lock.unlock();
    (void)events_.wait(reader);
    lock.lock();
    watched_ = false;
    changed_.notify_all();
  }
  piece take_piece(iterator from) noexcept {
    const auto b = find(from->batch);
    b->started = true;
    const piece taken{take_front(from->what, ring_->piece_bytes()), from->batch, b->stream};
    if (from->what.bytes == 0) {
      copies_.erase(from);
      room_.notify_all();
    }
    return taken;
  }
  void bring(const piece& p, std::unique_lock<std::mutex>& lock) noexcept {
    lock.unlock();
    const bool direct = pages_.holds(bytes_of(p.what));
    const bool enqueued = enqueue(p, direct);
    lock.lock();
    if (enqueued) (direct ? counts_.bytes_direct : counts_.bytes_staged) += p.what.bytes;
    finish_piece(p.batch);
  }
  bool enqueue(const piece& p, bool direct) noexcept {
    if (failures_.happened()) return false;
    if (direct) return failures_.note(api_.copy(p.what, p.stream), "cudaMemcpyAsync");
    return ring_->copy(bytes_of(p.what), p.what.to, p.stream, failures_);
  }
  static std::span<const std::byte> bytes_of(const copy_request& copy) noexcept {
    return {static_cast<const std::byte*>(copy.from), copy.bytes};
  }
  /// The last piece's thread records the event: by then every copy of the batch is in the stream.
  void finish_piece(ticket t) noexcept {
    const auto b = find(t);
    if (--b->pieces != 0) return;
    auto* const stream = b->stream;
    batches_.erase(b);
    room_.notify_all();
    if (failures_.happened())
      events_.settle(t, transfer_state::failed);
    else
      events_.record(t, stream);
  }
  std::vector<batch>::iterator find(ticket t) noexcept {
    return std::ranges::find(batches_, t, &batch::id);
  }

  runtime& api_;
  int device_;
  std::unique_ptr<staging_ring> ring_;
  const pinned_memory& pages_;
  event_ring& events_;
  sticky_failure& failures_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable room_;
  std::vector<waiting> copies_;  ///< in order of submission
  std::vector<batch> batches_;
  transfer_counts counts_;
  bool watched_ = false;  ///< a thread waits for a reader
  bool stopping_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace hotset::cuda
