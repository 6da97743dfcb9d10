// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A queue of host work that runs in order: on its own thread (like a device stream) or on the caller's.

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/fill.hpp"
#include "hotset/core/platform/start_threads.hpp"
#include "hotset/core/status.hpp"
#include "hotset/transfer/ticket_board.hpp"
#include "hotset/transfer/transfer_observer.hpp"

namespace hotset {

/// Threads: safe. No allocation after construction; enqueueing waits while the ring is full. A stream and the backends
/// of its tickets may be destroyed in any order: both own the ticket board.
class host_stream {
 public:
  /// Runs work in the caller at once, or on a worker thread.
  enum class mode { caller, worker };
  using work = void (*)(void* context) noexcept;
  static constexpr std::size_t default_capacity = 1024;

  /// `capacity`: size of a worker's ring. Errors: a worker with capacity 0; the system refuses a thread.
  static result<std::unique_ptr<host_stream>> create(mode how,
                                                     std::size_t capacity = default_capacity) {
    auto made = std::make_unique<host_stream>();
    if (auto refused = made->begin(how, capacity)) return *std::move(refused);
    return made;
  }
  /// A stream that runs work in the caller.
  host_stream() = default;
#if HOTSET_EXCEPTIONS
  /// Same as `create`. Errors: throws invalid_config.
  explicit host_stream(mode how, std::size_t capacity = default_capacity) : host_stream() {
    require_valid(begin(how, capacity));
  }
#endif
  host_stream(const host_stream&) = delete;
  host_stream& operator=(const host_stream&) = delete;
  /// Runs all enqueued work before it returns.
  ~host_stream() {
    if (is_caller()) return;
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    worker_.front().join();
  }

  /// Runs `what(context)` after all work enqueued so far.
  void run(work what, void* context) noexcept {
    if (is_caller()) return what(context);
    push({what, context, nullptr, no_ticket, true, nullptr});
  }
  /// Makes work that is enqueued later start after `t` has settled. In mode caller this waits and reports a failure.
  /// `observer`: notified of a wait for a pending ticket; it outlives the stream.
  status wait_for(const std::shared_ptr<ticket_board>& board, ticket t,
                  transfer_observer* observer = nullptr) noexcept {
    if (is_caller())
      return wait(*board, t, observer) == transfer_state::arrived ? status::ok
                                                                  : status::fill_failed;
    push({nullptr, nullptr, board, t, true, observer});
    return status::ok;
  }
  /// Settles `t` when all work enqueued so far has run.
  void settle_after(const std::shared_ptr<ticket_board>& board, ticket t) noexcept {
    if (is_caller()) return board->settle(t, transfer_state::arrived);
    push({nullptr, nullptr, board, t, false, nullptr});
  }
  /// Waits until all work enqueued so far has run.
  void drain() noexcept {
    if (is_caller()) return;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return count_ == 0 && !busy_; });
  }
  [[nodiscard]] bool is_caller() const noexcept { return worker_.empty(); }

 private:
  struct command {
    work what = nullptr;
    void* context = nullptr;
    std::shared_ptr<ticket_board> board{};
    ticket id = no_ticket;
    bool wait = false;
    transfer_observer* observer = nullptr;
  };

  void push(command c) noexcept {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return count_ < ring_.size(); });
      ring_[(first_ + count_++) % ring_.size()] = std::move(c);
    }
    changed_.notify_all();
  }
  validation begin(mode how, std::size_t capacity) {
    if (how == mode::caller) return std::nullopt;
    if (capacity == 0) return error{"worker stream capacity = 0, accepted: 1 or more"};
    ring_.resize(capacity);
    return detail::start_threads(worker_, 1, [this] { loop(); });
  }
  void loop() noexcept {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return count_ != 0 || stopping_; });
      if (count_ == 0) return;
      const auto c = std::exchange(ring_[first_], {});
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
  static transfer_state wait(ticket_board& board, ticket t, transfer_observer* observer) noexcept {
    if (observer == nullptr || board.state(t) != transfer_state::pending) return board.wait(t);
    const auto begin = observed_clock::now();
    const auto state = board.wait(t);
    observer->on_wait({t, begin, observed_clock::now(), &board});
    return state;
  }
  static void execute(const command& c) noexcept {
    if (c.what != nullptr) {
      c.what(c.context);
    } else if (c.wait) {
      (void)wait(*c.board, c.id, c.observer);
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
  std::vector<std::thread> worker_;  ///< one thread, or none in mode caller
};

}  // namespace hotset
