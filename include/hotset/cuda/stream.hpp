// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A stream of a device: one of our own, or one that an engine lends.

#include <utility>

#include "hotset/core/error.hpp"
#include "hotset/cuda/device_scope.hpp"
#include "hotset/cuda/runtime.hpp"

namespace hotset::cuda {

/// Destroying one that is owned does not wait for its work.
class stream {
 public:
  /// Errors: what the runtime said.
  static result<stream> create(runtime& api, int device,
                               stream_priority priority = stream_priority::high) noexcept {
    const device_scope scope(api, device);
    if (scope.what().happened()) return describe(api, scope.what());
    stream_handle made = nullptr;
    if (const auto code = api.create_stream(made, priority); code != error_code::success)
      return describe(api, {code, "cudaStreamCreateWithPriority"});
    return stream(api, made, true);
  }
  /// An engine's stream; it outlives this object.
  static stream borrow(runtime& api, stream_handle handle) noexcept { return {api, handle, false}; }

  stream(stream&& other) noexcept
      : api_(other.api_), handle_(other.handle_), owned_(std::exchange(other.owned_, false)) {}
  stream& operator=(stream&& other) noexcept {
    std::swap(api_, other.api_);
    std::swap(handle_, other.handle_);
    std::swap(owned_, other.owned_);
    return *this;
  }
  ~stream() {
    if (owned_) (void)api_->destroy_stream(handle_);
  }

  [[nodiscard]] stream_handle handle() const noexcept { return handle_; }

 private:
  stream(runtime& api, stream_handle handle, bool owned) noexcept
      : api_(&api), handle_(handle), owned_(owned) {}

  runtime* api_;
  stream_handle handle_;
  bool owned_;
};

}  // namespace hotset::cuda
