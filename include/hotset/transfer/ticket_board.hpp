// SPDX-License-Identifier: Apache-2.0
#pragma once
/// States of a backend's tickets: recent ones in a ring of fixed size, and failures of older ones.

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "hotset/core/fill.hpp"

namespace hotset {

/// Tickets that did not arrive and whose ring entries were reused. A ticket that left the ring has arrived unless it
/// is recorded here.
/// If there are too many records, the oldest is dropped. All tickets up to it then count as failed: repeating a copy
/// is harmless, using missing bytes is not.
/// Complexity: O(log lost) for a query. No allocation after construction. Threads: compatible.
class lost_tickets {
 public:
  /// A ticket that did not arrive, and how it ended.
  struct record {
    ticket id = no_ticket;
    transfer_state state = transfer_state::arrived;
  };

  explicit lost_tickets(std::size_t most) : most_(most) { lost_.reserve(most); }

  /// Records `t`, which ended as `state`, when its ring entry is reused. Tickets come in ascending order.
  void leave(ticket t, transfer_state state) noexcept {
    if (t == no_ticket || state == transfer_state::arrived) return;
    if (lost_.size() == most_) {
      unknown_ = most_ == 0 ? t : lost_.front().id;
      if (most_ == 0) return;
      lost_.erase(lost_.begin());
    }
    lost_.push_back({t, state});
  }
  /// The final state of a ticket whose entry was reused.
  [[nodiscard]] transfer_state state(ticket t) const noexcept {
    if (t == no_ticket) return transfer_state::arrived;
    if (t <= unknown_) return transfer_state::failed;
    const auto found = std::ranges::lower_bound(lost_, t, {}, &record::id);
    return found != lost_.end() && found->id == t ? found->state : transfer_state::arrived;
  }

 private:
  std::size_t most_;
  std::vector<record> lost_;    ///< ascending
  ticket unknown_ = no_ticket;  ///< tickets up to this one count as failed
};

/// A ring entry is reused after its ticket has settled. A ticket older than the ring has arrived unless `lost_tickets`
/// records a failure. Failures are reported however late the query is. Threads: safe.
class ticket_board {
 public:
  static constexpr std::size_t default_ring = 4096;

  explicit ticket_board(std::size_t ring = default_ring) : entries_(ring), lost_(ring) {}

  /// Returns a new pending ticket, or no_ticket while the oldest ticket in the ring is pending.
  ticket open() noexcept {
    const std::lock_guard lock(mutex_);
    return is_full() ? no_ticket : next();
  }
  /// Returns a new pending ticket. Waits while the oldest ticket in the ring is pending.
  ticket wait_to_open() noexcept {
    std::unique_lock lock(mutex_);
    settled_.wait(lock, [&] { return !is_full(); });
    return next();
  }
  void settle(ticket t, transfer_state state) noexcept {
    {
      const std::lock_guard lock(mutex_);
      auto& entry = at(t);
      if (entry.id == t) entry.state = state;
      ++changes_;
    }
    settled_.notify_all();
  }
  /// Counter of settled tickets and touches. Read it before a check, then wait for it to change.
  [[nodiscard]] std::uint64_t changes() const noexcept {
    const std::lock_guard lock(mutex_);
    return changes_;
  }
  void wait_for_change(std::uint64_t seen) noexcept {
    std::unique_lock lock(mutex_);
    settled_.wait(lock, [&] { return changes_ != seen; });
  }
  /// Wakes threads that wait for a change.
  void touch() noexcept {
    {
      const std::lock_guard lock(mutex_);
      ++changes_;
    }
    settled_.notify_all();
  }
  [[nodiscard]] transfer_state state(ticket t) const noexcept {
    const std::lock_guard lock(mutex_);
    return look(t);
  }
  transfer_state wait(ticket t) noexcept {
    std::unique_lock lock(mutex_);
    settled_.wait(lock, [&] { return look(t) != transfer_state::pending; });
    return look(t);
  }

 private:
  using record = lost_tickets::record;
  [[nodiscard]] record& at(ticket t) noexcept {
    return entries_[static_cast<std::size_t>(t) % entries_.size()];
  }
  [[nodiscard]] bool is_full() noexcept { return at(last_ + 1).state == transfer_state::pending; }
  /// Pre: !is_full().
  ticket next() noexcept {
    auto& entry = at(last_ + 1);
    lost_.leave(entry.id, entry.state);
    entry = {++last_, transfer_state::pending};
    return last_;
  }
  [[nodiscard]] transfer_state look(ticket t) const noexcept {
    const auto& entry = entries_[static_cast<std::size_t>(t) % entries_.size()];
    return entry.id == t ? entry.state : lost_.state(t);
  }

  mutable std::mutex mutex_;
  std::condition_variable settled_;
  std::vector<record> entries_;
  lost_tickets lost_;
  ticket last_ = no_ticket;
  std::uint64_t changes_ = 0;
};

}  // namespace hotset
