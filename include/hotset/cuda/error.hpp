// SPDX-License-Identifier: Apache-2.0
#pragma once
/// CUDA runtime error codes that hotset names, and the first failure of a component.

#include <atomic>
#include <string_view>

#include "hotset/core/error.hpp"

namespace hotset::cuda {

/// Values are those of `cudaError_t`; codes without a name here keep their number.
enum class error_code : int {
  success = 0,
  invalid_value = 1,
  memory_allocation = 2,
  insufficient_driver = 35,
  invalid_device = 101,
  not_ready = 600,
  not_supported = 801,
  stream_capture_unsupported = 900,
  unknown = 999,
};

/// A failed call.
struct failure {
  error_code code = error_code::success;
  std::string_view call{};  ///< static storage, such as "cudaMemcpyAsync"

  [[nodiscard]] bool happened() const noexcept { return code != error_code::success; }
};

/// Returns whether an event may still be pending: it has not passed, or the query was refused inside a capture. A
/// refused query also ends the capture, which the capture's owner sees.
[[nodiscard]] constexpr bool is_open_answer(error_code code) noexcept {
  return code == error_code::not_ready || code == error_code::stream_capture_unsupported;
}

/// Names and texts of error codes, which only the platform knows.
class error_texts {
 public:
  error_texts() = default;
  error_texts(const error_texts&) = delete;
  error_texts& operator=(const error_texts&) = delete;
  virtual ~error_texts() = default;
  [[nodiscard]] virtual std::string_view error_name(error_code code) const noexcept = 0;
  [[nodiscard]] virtual std::string_view error_text(error_code code) const noexcept = 0;
};

/// One line: the call, the code's name and number, and the driver's own text.
inline error describe(const error_texts& api, const failure& what) {
  return refusal(what.call, ": ", api.error_name(what.code), " (", static_cast<int>(what.code),
                 "): ", api.error_text(what.code));
}

/// Keeps the first failure permanently. Threads: safe.
class sticky_failure {
 public:
  /// Returns true if the call succeeded. Pre: `call` has static storage.
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

}  // namespace hotset::cuda
