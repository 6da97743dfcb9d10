// SPDX-License-Identifier: Apache-2.0
#pragma once
/// An observer that keeps what a backend reports.

#include <cstddef>
#include <mutex>
#include <vector>

#include "hotset/transfer/transfer_observer.hpp"

namespace hotset::support {

/// Threads: safe.
class seen_transfers final : public transfer_observer {
 public:
  void on_copy(const ended_copy& copy) noexcept override {
    const std::lock_guard lock(mutex_);
    copies_.push_back(copy);
  }
  void on_wait(const ended_wait& wait) noexcept override {
    const std::lock_guard lock(mutex_);
    waits_.push_back(wait);
  }
  [[nodiscard]] std::vector<ended_copy> copies() const {
    const std::lock_guard lock(mutex_);
    return copies_;
  }
  [[nodiscard]] std::vector<ended_wait> waits() const {
    const std::lock_guard lock(mutex_);
    return waits_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<ended_copy> copies_;
  std::vector<ended_wait> waits_;
};

}  // namespace hotset::support
