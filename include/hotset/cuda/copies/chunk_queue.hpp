// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Enqueues speculative copies from page-locked memory a few chunks ahead of the device, so that demand copies wait
/// briefly.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/fill.hpp"
#include "hotset/cuda/event_ring.hpp"
#include "hotset/cuda/runtime.hpp"
#include "hotset/cuda/stream.hpp"

namespace hotset::cuda {

/// Has no thread: its callers run `pump`, which enqueues chunks as the device progresses.
/// All batches go to streams that run in order of submission (one stream). No allocation after construction.
class chunk_queue {
 public:
  /// `ahead`: most chunks enqueued and not yet copied. `most_copies`: most copies waiting at one time. `events` and
  /// `failures` must outlive the queue.
  /// Errors: sizes of 0; those of the runtime (nothing is leaked).
  static result<chunk_queue> create(runtime& api, int device, std::size_t chunk_bytes,
                                    std::size_t ahead, std::size_t most_copies, event_ring& events,
                                    sticky_failure& failures) {
    if (chunk_bytes == 0 || ahead == 0)
      return refusal("chunks of ", chunk_bytes, " bytes, ", ahead,
                     " ahead, accepted: 1 or more of each");
    auto passed = create_events(api, device, ahead);
    if (!passed) return passed.error();
    chunk_queue made(api, chunk_bytes, *std::move(passed), events, failures);
    made.copies_.reserve(most_copies);
    return made;
  }

  [[nodiscard]] bool empty() const noexcept { return copies_.empty(); }
  [[nodiscard]] bool has_room(std::size_t copies) const noexcept {
    return copies <= copies_.capacity() - copies_.size();
  }
  /// `t` is recorded on `stream` after the last copy. Pre: has_room(copies.size()), copies not empty.
  void submit(ticket t, std::span<const copy_request> copies, stream_handle stream) noexcept {
    for (std::size_t i = 0; i < copies.size(); ++i)
      copies_.push_back({copies[i], stream, t, i + 1 == copies.size(), false});
    pump();
  }
  /// Enqueues chunks until `ahead` of them are not yet copied.
  void pump() noexcept {
    while (!copies_.empty() && has_window()) {
      auto* const stream = copies_.front().stream;
      enqueue_chunk(copies_.begin(), chunk_bytes_);
      mark_passed(stream);
    }
  }
  /// Enqueues the rest of a batch, regardless of `ahead`. Returns false if the batch is not waiting here.
  bool push(ticket t) noexcept {
    auto first = find(t);
    if (first == copies_.end()) return false;
    while (first != copies_.end() && first->batch == t) enqueue_chunk(first, first->what.bytes);
    return true;
  }
  /// Cancels a batch if no part of it was enqueued. Returns whether it was cancelled.
  bool cancel(ticket t) noexcept {
    const auto first = find(t);
    if (first == copies_.end() || first->started) return false;
    std::erase_if(copies_, [t](const waiting& w) { return w.batch == t; });
    events_.settle(t, transfer_state::cancelled);
    return true;
  }
  /// Ends the queue: enqueues the rest of started batches and cancels the others.
  void finish() noexcept {
    while (!copies_.empty())
      if (const auto t = copies_.front().batch; !cancel(t)) push(t);
  }

  /// Units: bytes passed to the runtime.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  struct waiting {
    copy_request what{};
    stream_handle stream = nullptr;
    ticket batch = no_ticket;
    bool last = false;     ///< the last copy of its batch
    bool started = false;  ///< part of its batch was enqueued
  };
  using iterator = std::vector<waiting>::iterator;

  chunk_queue(runtime& api, std::size_t chunk_bytes, std::vector<owned_event> passed,
              event_ring& events, sticky_failure& failures)
      : api_(api),
        events_(events),
        failures_(failures),
        chunk_bytes_(chunk_bytes),
        passed_(std::move(passed)) {}

  iterator find(ticket t) noexcept { return std::ranges::find(copies_, t, &waiting::batch); }
  /// Enqueues at most `bytes` of a copy; after its last byte, records the batch's event. `at` then names the next
  /// copy.
  void enqueue_chunk(iterator at, std::size_t bytes) noexcept {
    auto& w = *at;
    const auto chunk = take_front(w.what, bytes);
    if (!failures_.happened() && failures_.note(api_.copy(chunk, w.stream), "cudaMemcpyAsync"))
      bytes_ += chunk.bytes;
    w.started = true;
    if (w.what.bytes != 0) return;
    if (w.last) {
      if (failures_.happened())
        events_.settle(w.batch, transfer_state::failed);
      else
        events_.record(w.batch, w.stream);
    } else {
      std::next(at)->started = true;
    }
    copies_.erase(at);
  }
  /// Returns whether one more chunk may be enqueued ahead of the device.
  bool has_window() noexcept {
    while (ahead_ != 0 && !failures_.happened()) {
      const auto oldest = (turn_ + passed_.size() - ahead_) % passed_.size();
      const auto code = api_.query_event(passed_[oldest].get());
      if (is_open_answer(code)) break;
      (void)failures_.note(code, "cudaEventQuery");
      --ahead_;
    }
    return ahead_ < passed_.size() || failures_.happened();
  }
  void mark_passed(stream_handle stream) noexcept {
    if (failures_.happened()) return;
    (void)failures_.note(api_.record_event(passed_[turn_].get(), stream), "cudaEventRecord");
    turn_ = (turn_ + 1) % passed_.size();
    ++ahead_;
  }

  runtime& api_;
  event_ring& events_;
  sticky_failure& failures_;
  std::size_t chunk_bytes_;
  std::vector<waiting> copies_;      ///< in order of submission; a batch's copies are neighbours
  std::vector<owned_event> passed_;  ///< ring: one event after each chunk that may be uncopied
  std::size_t turn_ = 0;
  std::size_t ahead_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace hotset::cuda
