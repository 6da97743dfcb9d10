// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A queue of host work that runs in order: on its own thread like a device stream, or on the caller's.

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <thread>
#include <vector>

#include "hotset/core/fill.hpp"
#include "hotset/core/status.hpp"
#include "hotset/transfer/ticket_board.hpp"

namespace hotset::inline v0 {

/// Threads: safe. No allocation after construction; enqueueing waits while the ring is full.
class host_stream {
 public:
  /// Who runs the work: the caller at once, or a thread.
  enum class mode { caller, worker };
  using work = void (*)(void* context) noexcept;

  explicit host_stream(mode how = mode::caller, std::size_t capacity = 1024) : ring_(capacity) {
    if (how == mode::worker) thread_ = std::thread([this] { loop(); });
  }
  host_stream(const host_stream&) = delete;
  host_stream& operator=(const host_stream&) = delete;
  ~host_stream() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  /// Runs `what(context)` after everything enqueued so far.
  void run(work what, void* context) noexcept {
    if (!thread_.joinable()) return what(context);
    push({what, context, nullptr, no_ticket, true});
  }
  /// What is enqueued later starts after `t` has settled. On the caller's stream this waits, and tells of a failure.
  status wait_for(ticket_board& board, ticket t) noexcept {
    if (!thread_.joinable())
      return board.wait(t) == transfer_state::arrived ? status::ok : status::fill_failed;
    push({nullptr, nullptr, &board, t, true});
    return status::ok;
  }
  /// Settles `t` when everything enqueued so far has run.
  void settle_after(ticket_board& board, ticket t) noexcept {
    if (!thread_.joinable()) return board.settle(t, transfer_state::arrived);
    push({nullptr, nullptr, &board, t, false});
  }
  /// Waits until everything enqueued so far has run.
  void drain() noexcept {
    if (!thread_.joinable()) return;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return count_ == 0 && !busy_; });
  }
  [[nodiscard]] bool is_caller() const noexcept { return !thread_.joinable(); }

 private:
  struct command {
    work what = nullptr;
    void* context = nullptr;
    ticket_board* board = nullptr;
    ticket id = no_ticket;
    bool wait = false;
  };

  void push(const command& c) noexcept {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return count_ < ring_.size(); });
      ring_[(first_ + count_++) % ring_.size()] = c;
    }
    changed_.notify_all();
  }
  void loop() noexcept {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return count_ != 0 || stopping_; });
      if (count_ == 0) return;
      const command c = ring_[first_];
      first_ = (first_ + 1) % ring_.size();
      --count_;
      busy_ = true;
      lock.unlock();
      execute(c);
      lock.lock();
      busy_ = false;
      changed_.notify_all();
    }
  }
  static void execute(const command& c) noexcept {
    if (c.what != nullptr) {
      c.what(c.context);
    } else if (c.wait) {
      c.board->wait(c.id);
    } else {
      c.board->settle(c.id, transfer_state::arrived);
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<command> ring_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
  bool busy_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace hotset::inline v0
