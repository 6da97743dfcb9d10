// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Copies experts into host slots on a thread of its own, demand before speculation, each in order of submission.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "hotset/concepts/expert_source.hpp"
#include "hotset/concepts/transfer_backend.hpp"
#include "hotset/transfer/host_slot_bank.hpp"
#include "hotset/transfer/host_stream.hpp"
#include "hotset/transfer/ticket_board.hpp"

namespace hotset::inline v0 {

/// A copy waits for the last reader of its slot (`fill::after`) and for nothing else. A ticket arrives when every
/// tensor of every fill of its batch is in place; one missing or mis-sized tensor fails the batch.
/// Threads: safe. No allocation after construction; a full queue refuses fills (`accepted` tells).
template <expert_source Source>
class host_backend {
 public:
  using stream_type = host_stream;

  struct config {
    std::size_t most_fills = 4096;  ///< waiting at one time
  };

  /// `source` and `bank` outlive the backend.
  host_backend(const Source& source, const host_slot_bank& bank, const config& setup = {})
      : source_(source), bank_(bank) {
    jobs_.reserve(setup.most_fills);
    batches_.reserve(setup.most_fills);
    thread_ = std::thread([this] { loop(); });
  }
  host_backend(const host_backend&) = delete;
  host_backend& operator=(const host_backend&) = delete;
  /// Copies what was submitted, then ends the thread.
  ~host_backend() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    board_.touch();
    thread_.join();
  }

  submission submit(std::span<const fill> fills, host_stream&, urgency when) noexcept {
    submission out;
    {
      const std::lock_guard lock(mutex_);
      const auto room = jobs_.capacity() - jobs_.size();
      if (fills.empty() || room == 0 || batches_.size() == batches_.capacity()) return out;
      out.id = board_.open();
      if (out.id == no_ticket) return out;
      out.accepted = std::min(room, fills.size());
      for (const auto& f : fills.first(out.accepted)) jobs_.push_back({f, out.id, when});
      batches_.push_back({out.id, out.accepted, false, false});
    }
    board_.touch();
    return out;
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
    board_.settle(t, transfer_state::cancelled);
    return true;
  }
  status fence(host_stream& stream, ticket t) noexcept { return stream.wait_for(board_, t); }
  ticket record(host_stream& stream) noexcept {
    if (stream.is_caller()) return no_ticket;
    auto t = board_.open();
    for (; t == no_ticket; t = board_.open()) std::this_thread::yield();
    stream.settle_after(board_, t);
    return t;
  }
  [[nodiscard]] transfer_state poll(ticket t) const noexcept { return board_.state(t); }
  transfer_state wait(ticket t) noexcept { return board_.wait(t); }
  /// Units: bytes copied since construction.
  [[nodiscard]] std::uint64_t bytes_moved() const noexcept {
    const std::lock_guard lock(mutex_);
    return bytes_moved_;
  }

 private:
  struct job {
    fill what;
    ticket batch = no_ticket;
    urgency when = urgency::now;
  };
  struct batch {
    ticket id = no_ticket;
    std::size_t left = 0;
    bool started = false;
    bool failed = false;
  };

  void loop() noexcept {
    std::unique_lock lock(mutex_);
    while (true) {
      const auto seen = board_.changes();
      const auto next = choose();
      if (next == jobs_.end()) {
        if (jobs_.empty() && stopping_) return;
        lock.unlock();
        board_.wait_for_change(seen);  // a reader is done, or there is more to do
        lock.lock();
        continue;
      }
      const job taken = *next;
      jobs_.erase(next);
      std::ranges::find(batches_, taken.batch, &batch::id)->started = true;
      lock.unlock();
      const auto moved = copy(taken.what);
      lock.lock();
      finish(taken.batch, moved);
    }
  }
  /// The first demand copy whose slot is no longer read, else the first such speculative one, else none.
  typename std::vector<job>::iterator choose() noexcept {
    for (const auto when : {urgency::now, urgency::soon})
      for (auto it = jobs_.begin(); it != jobs_.end(); ++it)
        if (it->when == when && board_.state(it->what.after) != transfer_state::pending) return it;
    return jobs_.end();
  }
  /// Returns the bytes moved, 0 for a copy that cannot be made.
  [[nodiscard]] std::uint64_t copy(const fill& f) const noexcept {
    const auto tensors = source_.tensors(f.key, f.precision);
    if (tensors.empty() || tensors.size() != bank_.tensors(f.slot)) return 0;
    for (std::size_t t = 0; t < tensors.size(); ++t)
      if (tensors[t].size() != bank_.bytes(f.slot, t).size()) return 0;
    std::uint64_t moved = 0;
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      std::memcpy(bank_.bytes(f.slot, t).data(), tensors[t].data(), tensors[t].size());
      moved += tensors[t].size();
    }
    return moved;
  }
  void finish(ticket id, std::uint64_t moved) noexcept {
    const auto b = std::ranges::find(batches_, id, &batch::id);
    b->failed = b->failed || moved == 0;
    bytes_moved_ += moved;
    if (--b->left != 0) return;
    const auto state = b->failed ? transfer_state::failed : transfer_state::arrived;
    batches_.erase(b);
    board_.settle(id, state);
  }

  const Source& source_;
  const host_slot_bank& bank_;
  ticket_board board_;
  mutable std::mutex mutex_;
  std::vector<job> jobs_;  ///< in order of submission
  std::vector<batch> batches_;
  std::uint64_t bytes_moved_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace hotset::inline v0
