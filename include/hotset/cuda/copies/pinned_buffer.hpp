// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Page-locked host memory: taken from the runtime, or memory of others that is page-locked while this lives.

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "hotset/core/error.hpp"
#include "hotset/cuda/runtime.hpp"

namespace hotset::cuda {

/// Page-locks exactly what was asked for: no rounding to a power of two.
class pinned_buffer {
 public:
  /// Errors: no bytes; what the runtime said.
  static result<pinned_buffer> allocate(runtime& api, std::size_t bytes) noexcept {
    if (bytes == 0) return error{"0 bytes of page-locked memory, accepted: 1 or more"};
    void* memory = nullptr;
    if (const auto code = api.allocate_host(memory, bytes); code != error_code::success)
      return refused(api, {code, "cudaHostAlloc"}, bytes);
    return pinned_buffer(api, {static_cast<std::byte*>(memory), bytes}, true);
  }
  /// Page-locks memory that the caller keeps, such as a mapped file; `read_only` where it may not be written.
  /// Errors: no bytes; what the runtime said.
  static result<pinned_buffer> lock(runtime& api, std::span<const std::byte> memory,
                                    bool read_only = false) noexcept {
    if (memory.empty()) return error{"0 bytes of page-locked memory, accepted: 1 or more"};
    auto* const first = const_cast<std::byte*>(memory.data());  // the runtime's own signature
    if (const auto code = api.register_host(first, memory.size(), read_only);
        code != error_code::success)
      return refused(api, {code, "cudaHostRegister"}, memory.size());
    return pinned_buffer(api, {first, memory.size()}, false);
  }

  pinned_buffer(pinned_buffer&& other) noexcept
      : api_(other.api_), bytes_(std::exchange(other.bytes_, {})), owned_(other.owned_) {}
  pinned_buffer& operator=(pinned_buffer&& other) noexcept {
    std::swap(api_, other.api_);
    std::swap(bytes_, other.bytes_);
    std::swap(owned_, other.owned_);
    return *this;
  }
  ~pinned_buffer() {
    if (bytes_.empty()) return;
    (void)(owned_ ? api_->free_host(bytes_.data()) : api_->unregister_host(bytes_.data()));
  }

  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }

 private:
  pinned_buffer(runtime& api, std::span<std::byte> bytes, bool owned) noexcept
      : api_(&api), bytes_(bytes), owned_(owned) {}
  static error refused(const runtime& api, const failure& what, std::size_t bytes) {
    return error{"cannot page-lock " + std::to_string(bytes) +
                 " bytes: " + describe(api, what).message};
  }

  runtime* api_;
  std::span<std::byte> bytes_;
  bool owned_;
};

}  // namespace hotset::cuda
