// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A device stream on a virtual clock: device time, host time, and time spent waiting.

#include <algorithm>

#include "lab/replay/link_model.hpp"

namespace hotset {

/// The host runs ahead of the device until it synchronises; enqueued work starts no earlier than it is issued.
class clock_stream {
 public:
  /// End of the work enqueued so far.
  [[nodiscard]] ticks now() const noexcept { return now_; }
  /// Time at which the host issues its next work.
  [[nodiscard]] ticks host() const noexcept { return host_; }
  /// Time that the stream has waited in fences: blocking I/O.
  [[nodiscard]] ticks blocked() const noexcept { return blocked_; }

  /// Enqueues `work` nanoseconds of work.
  void run(ticks work) noexcept { now_ = begin_of_next() + work; }
  /// Later work starts no earlier than `time`. Returns how long the stream waits for it.
  ticks wait_until(ticks time) noexcept {
    const auto begin = begin_of_next();
    if (time <= begin) return 0;
    const auto waited = time - begin;
    blocked_ += waited;
    now_ = time;
    return waited;
  }
  /// The host waits for all enqueued work.
  void synchronise() noexcept { host_ = now_ = begin_of_next(); }
  /// The host issues its next work no earlier than `time`.
  void issue_at(ticks time) noexcept { host_ = std::max(host_, time); }

 private:
  [[nodiscard]] ticks begin_of_next() const noexcept { return std::max(now_, host_); }

  ticks now_ = 0;
  ticks host_ = 0;
  ticks blocked_ = 0;
};

}  // namespace hotset
