// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Notifies an observer of each copy that a backend has ended and of each wait for copies, with their times.
///
/// A backend without an observer reads no clock: it spends one branch per copy and per wait.

#include <chrono>
#include <cstdint>

#include "hotset/core/fill.hpp"

namespace hotset {

/// The clock of observed times.
using observed_clock = std::chrono::steady_clock;

/// Nanoseconds from `begin` to `end`; 0 if `end` is not later.
[[nodiscard]] inline std::uint64_t nanoseconds_between(observed_clock::time_point begin,
                                                       observed_clock::time_point end) noexcept {
  const auto passed = std::chrono::nanoseconds(end - begin).count();
  return passed > 0 ? static_cast<std::uint64_t>(passed) : 0;
}

/// A copy that has arrived or failed.
struct ended_copy {
  fill what{};
  ticket batch = no_ticket;
  urgency when = urgency::now;  ///< at its end: a visit that waits for a prefetch makes it `now`
  std::uint64_t bytes = 0;      ///< bytes that were copied
  observed_clock::time_point submitted{};
  observed_clock::time_point begin{};  ///< the first byte moved
  observed_clock::time_point end{};
  bool arrived = false;
  const void* backend = nullptr;  ///< tells the tickets of several backends apart

  /// True for prefetches and warm starts, which no visit had waited for when they were submitted.
  [[nodiscard]] bool is_ahead() const noexcept { return what.speculative || when == urgency::soon; }
};

/// A wait for copies: the stream could do nothing else.
struct ended_wait {
  ticket batch = no_ticket;  ///< no_ticket: copies that the engine makes itself
  observed_clock::time_point begin{};
  observed_clock::time_point end{};
  const void* backend = nullptr;  ///< as that of its copies
};

/// Threads: copies are reported by the threads that make them, waits by the threads that wait. A ticket's copies are
/// reported before a wait for the ticket ends. Cancelled copies are not reported. Calls must be short: a backend may
/// hold a lock.
class transfer_observer {
 public:
  virtual ~transfer_observer() = default;
  virtual void on_copy(const ended_copy& copy) noexcept = 0;
  virtual void on_wait(const ended_wait& wait) noexcept = 0;

 protected:
  transfer_observer() = default;
  transfer_observer(const transfer_observer&) = default;
  transfer_observer& operator=(const transfer_observer&) = default;
};

}  // namespace hotset
