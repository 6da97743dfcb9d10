// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Makes a device current for a scope, and owns its streams, events and memory.

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/cuda/runtime.hpp"

namespace hotset::cuda {

/// Makes a device current for the calling thread while the scope lasts. A new thread starts on device 0, not on its
/// creator's device. Costs one call if the device is already current.
class device_scope {
 public:
  device_scope(runtime& api, int device) noexcept : api_(api) {
    int before = device;
    code_ = api_.current_device(before);
    if (code_ != error_code::success || before == device) return;
    code_ = api_.set_device(device);
    if (code_ == error_code::success) restore_ = before;
  }
  device_scope(const device_scope&) = delete;
  device_scope& operator=(const device_scope&) = delete;
  ~device_scope() {
    if (restore_ >= 0) (void)api_.set_device(restore_);
  }

  [[nodiscard]] failure what() const noexcept {
    return code_ == error_code::success ? failure{} : failure{code_, "cudaSetDevice"};
  }

 private:
  runtime& api_;
  error_code code_ = error_code::success;
  int restore_ = -1;
};

/// Returns success outside of a capture, stream_capture_unsupported inside one, or the code of the first failed call.
inline error_code refuse_capture(runtime& api, stream_handle stream,
                                 sticky_failure& failures) noexcept {
  bool capturing = false;
  if (!failures.note(api.is_capturing(stream, capturing), "cudaStreamIsCapturing"))
    return failures.first().code;
  return capturing ? error_code::stream_capture_unsupported : error_code::success;
}

/// Owns a handle and ends it with the runtime's call `End`; null: none.
template <class Handle, error_code (runtime::*End)(Handle) noexcept>
class owned {
 public:
  owned() = default;
  owned(runtime& api, Handle handle) noexcept : api_(&api), handle_(handle) {}
  owned(owned&& other) noexcept
      : api_(other.api_), handle_(std::exchange(other.handle_, nullptr)) {}
  owned& operator=(owned&& other) noexcept {
    std::swap(api_, other.api_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~owned() {
    if (handle_ != nullptr) (void)(api_->*End)(handle_);
  }

  [[nodiscard]] Handle get() const noexcept { return handle_; }

 private:
  runtime* api_ = nullptr;
  Handle handle_ = nullptr;
};
/// An event without timing.
using owned_event = owned<event_handle, &runtime::destroy_event>;
/// Device memory.
using owned_memory = owned<void*, &runtime::free>;

/// Creates events on a device, all or none. Errors: those of the runtime.
inline result<std::vector<owned_event>> create_events(runtime& api, int device, std::size_t count) {
  const device_scope scope(api, device);
  if (scope.what().happened()) return describe(api, scope.what());
  std::vector<owned_event> all;
  for (all.reserve(count); all.size() < count;) {
    event_handle event = nullptr;
    if (const auto code = api.create_event(event); code != error_code::success)
      return describe(api, {code, "cudaEventCreateWithFlags"});
    all.emplace_back(api, event);
  }
  return all;
}
/// Allocates memory on the current device. The error names `what` the memory is for. Errors: those of the runtime.
inline result<owned_memory> allocate_memory(runtime& api, std::size_t bytes,
                                            const std::string& what) {
  void* memory = nullptr;
  if (const auto code = api.allocate(memory, bytes); code != error_code::success)
    return refusal("cannot take ", bytes, " bytes for ", what, ": ",
                   describe(api, {code, "cudaMalloc"}).message);
  return owned_memory(api, memory);
}

/// A stream that this object owns, or one that an engine lends. Destroying an owned stream does not wait for its
/// work.
class stream {
 public:
  /// Errors: those of the runtime.
  static result<stream> create(runtime& api, int device,
                               stream_priority priority = stream_priority::high) noexcept {
    const device_scope scope(api, device);
    if (scope.what().happened()) return describe(api, scope.what());
    stream_handle made = nullptr;
    if (const auto code = api.create_stream(made, priority); code != error_code::success)
      return describe(api, {code, "cudaStreamCreateWithPriority"});
    return stream(made, owned_stream(api, made));
  }
  /// Borrows an engine's stream, which must outlive this object.
  static stream borrow(runtime& /*api*/, stream_handle handle) noexcept { return {handle, {}}; }

  [[nodiscard]] stream_handle handle() const noexcept { return handle_; }

 private:
  using owned_stream = owned<stream_handle, &runtime::destroy_stream>;

  stream(stream_handle handle, owned_stream own) noexcept : handle_(handle), own_(std::move(own)) {}

  stream_handle handle_;
  owned_stream own_;  ///< empty if the stream is borrowed
};

}  // namespace hotset::cuda
