// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a stream waits at until a test lets it go on.

#include <atomic>

#include "hotset/version.hpp"

namespace hotset::suites {

/// Holds a stream up until it is opened.
class gate {
 public:
  void open() noexcept {
    open_ = true;
    open_.notify_all();
  }
  [[nodiscard]] bool is_open() const noexcept { return open_; }
  /// For host_stream::run.
  static void pass(void* self) noexcept { static_cast<gate*>(self)->open_.wait(false); }

 private:
  std::atomic<bool> open_ = false;
};

}  // namespace hotset::suites
