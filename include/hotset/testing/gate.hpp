// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a stream waits at until a test lets it go on.

#include <condition_variable>
#include <mutex>

#include "hotset/version.hpp"

namespace hotset::suites {

/// Holds a stream up until it is opened.
class gate {
 public:
  void open() {
    {
      const std::lock_guard lock(mutex_);
      open_ = true;
    }
    changed_.notify_all();
  }
  [[nodiscard]] bool is_open() {
    const std::lock_guard lock(mutex_);
    return open_;
  }
  /// For host_stream::run.
  static void pass(void* self) noexcept {
    auto& g = *static_cast<gate*>(self);
    std::unique_lock lock(g.mutex_);
    g.changed_.wait(lock, [&] { return g.open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

}  // namespace hotset::suites
