// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Table of the CUDA runtime calls that hotset makes. Code that uses it is tested without a device.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "hotset/cuda/error.hpp"

// Types behind cudaStream_t and cudaEvent_t, declared here so that no toolkit header is needed.
struct CUstream_st;
struct CUevent_st;

namespace hotset::cuda {

/// The runtime's stream.
using stream_handle = CUstream_st*;
/// The runtime's event.
using event_handle = CUevent_st*;

/// Priority of a stream's work against other streams.
enum class stream_priority : int { low, high };

/// One copy to a device: from the host, or on the device.
struct copy_request {
  void* to = nullptr;          ///< device memory
  const void* from = nullptr;  ///< host memory
  std::size_t bytes = 0;
};

/// Splits off the first `most` bytes of a copy, or the whole copy.
inline copy_request take_front(copy_request& rest, std::size_t most) noexcept {
  const copy_request front{rest.to, rest.from, std::min(most, rest.bytes)};
  rest.to = static_cast<std::byte*>(rest.to) + front.bytes;
  rest.from = static_cast<const std::byte*>(rest.from) + front.bytes;
  rest.bytes -= front.bytes;
  return front;
}

/// An array in device memory. Only its address is read, never its contents.
class device_range {
 public:
  device_range() = default;
  template <class T>
  device_range(const T* data, std::int64_t count) noexcept
      : begin_(reinterpret_cast<std::uintptr_t>(data)),
        bytes_(static_cast<std::uintptr_t>(count) * sizeof(T)),
        is_aligned_(begin_ % alignof(T) == 0) {}

  /// An empty array may have any address; others need an address that is aligned for their type.
  [[nodiscard]] bool is_usable() const noexcept {
    return bytes_ == 0 || (begin_ != 0 && is_aligned_);
  }
  [[nodiscard]] bool overlaps(const device_range& other) const noexcept {
    return bytes_ != 0 && other.bytes_ != 0 && begin_ < other.begin_ + other.bytes_ &&
           other.begin_ < begin_ + bytes_;
  }
  [[nodiscard]] bool is(const device_range& other) const noexcept {
    return begin_ == other.begin_ && bytes_ == other.bytes_;
  }
  /// Returns whether a kernel may take the arrays: each is usable, and those from `first_result` on overlap no other.
  [[nodiscard]] static bool are_usable(std::span<const device_range> arrays,
                                       std::size_t first_result) noexcept {
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      if (!arrays[i].is_usable()) return false;
      for (auto j = std::max(i + 1, first_result); j < arrays.size(); ++j)
        if (arrays[i].overlaps(arrays[j])) return false;
    }
    return true;
  }

 private:
  std::uintptr_t begin_ = 0;
  std::uintptr_t bytes_ = 0;
  bool is_aligned_ = true;
};

/// Each call is the runtime function of the same name and returns its code. Outputs are written on success only.
/// `system_runtime()` is the real runtime; tests use one that needs no device. Threads: safe, like the runtime's
/// functions.
class runtime : public error_texts {
 public:
  virtual error_code device_count(int& count) noexcept = 0;
  virtual error_code current_device(int& device) noexcept = 0;
  virtual error_code set_device(int device) noexcept = 0;
  /// Units: bytes of device memory.
  virtual error_code memory_info(std::size_t& free, std::size_t& total) noexcept = 0;

  virtual error_code allocate(void*& memory, std::size_t bytes) noexcept = 0;
  virtual error_code free(void* memory) noexcept = 0;
  /// Page-locked host memory.
  virtual error_code allocate_host(void*& memory, std::size_t bytes) noexcept = 0;
  virtual error_code free_host(void* memory) noexcept = 0;
  virtual error_code register_host(void* memory, std::size_t bytes, bool read_only) noexcept = 0;
  virtual error_code unregister_host(void* memory) noexcept = 0;

  /// A stream that does not wait for the default stream.
  virtual error_code create_stream(stream_handle& stream, stream_priority priority) noexcept = 0;
  virtual error_code destroy_stream(stream_handle stream) noexcept = 0;
  virtual error_code wait_event(stream_handle stream, event_handle event) noexcept = 0;
  virtual error_code synchronize_stream(stream_handle stream) noexcept = 0;
  virtual error_code is_capturing(stream_handle stream, bool& capturing) noexcept = 0;

  /// An event without timing.
  virtual error_code create_event(event_handle& event) noexcept = 0;
  virtual error_code destroy_event(event_handle event) noexcept = 0;
  virtual error_code record_event(event_handle event, stream_handle stream) noexcept = 0;
  /// Returns `not_ready` while recorded work has not finished.
  virtual error_code query_event(event_handle event) noexcept = 0;
  virtual error_code synchronize_event(event_handle event) noexcept = 0;

  /// Returns whether `copy_batch` exists (runtime and driver of CUDA 12.8 or later).
  [[nodiscard]] virtual bool has_copy_batch() const noexcept = 0;
  virtual error_code copy(const copy_request& what, stream_handle stream) noexcept = 0;
  /// Copies within the current device's memory, mapped or allocated.
  virtual error_code copy_on_device(const copy_request& what, stream_handle stream) noexcept = 0;
  /// Pre: has_copy_batch(); `to`, `from` and `bytes` have equal length; targets do not overlap; sources are
  /// page-locked and stay valid until the stream has passed. The legacy default stream takes no batch: it gets single
  /// copies.
  virtual error_code copy_batch(std::span<void* const> to, std::span<const void* const> from,
                                std::span<const std::size_t> bytes,
                                stream_handle stream) noexcept = 0;
};

/// The CUDA runtime that the library is linked with. Part of hotset::cuda.
runtime& system_runtime() noexcept;

}  // namespace hotset::cuda
