// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A gate that holds a stream until a test opens it.

#include <atomic>

#include "hotset/version.hpp"

namespace hotset::suites {

/// Blocks a stream until open() is called.
class gate {
 public:
  void open() noexcept {
    open_ = true;
    open_.notify_all();
  }
  [[nodiscard]] bool is_open() const noexcept { return open_; }
  /// Work for host_stream::run: waits for the gate.
  static void pass(void* self) noexcept { static_cast<gate*>(self)->open_.wait(false); }

 private:
  std::atomic<bool> open_ = false;
};

}  // namespace hotset::suites
