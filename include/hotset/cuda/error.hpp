// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The CUDA runtime's error codes as far as hotset names them, and the first failure of a component.

#include <atomic>
#include <string_view>

namespace hotset::inline v0::cuda {

/// Values are those of `cudaError_t`; codes that have no name here keep their number.
enum class error_code : int {
  success = 0,
  invalid_value = 1,
  memory_allocation = 2,
  insufficient_driver = 35,
  no_device = 100,
  invalid_device = 101,
  not_ready = 600,
  host_memory_already_registered = 712,
  not_supported = 801,
  stream_capture_unsupported = 900,
  unknown = 999,
};

/// A call that failed.
struct failure {
  error_code code = error_code::success;
  std::string_view call{};  ///< of static storage, such as "cudaMemcpyAsync"

  [[nodiscard]] bool happened() const noexcept { return code != error_code::success; }
};

/// Keeps the first failure for good. Threads: safe.
class sticky_failure {
 public:
  /// Returns true if the call succeeded. Pre: `call` is of static storage.
  bool note(error_code code, std::string_view call) noexcept {
    if (code == error_code::success) return true;
    if (claimed_.test_and_set()) return false;
    first_ = {code, call};
    happened_.store(true, std::memory_order_release);
    return false;
  }
  [[nodiscard]] bool happened() const noexcept { return happened_.load(std::memory_order_acquire); }
  [[nodiscard]] failure first() const noexcept { return happened() ? first_ : failure{}; }

 private:
  std::atomic_flag claimed_;
  std::atomic<bool> happened_{false};
  failure first_{};
};

}  // namespace hotset::inline v0::cuda
