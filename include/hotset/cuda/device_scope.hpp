// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Makes a device the calling thread's current one for as long as the scope lasts.

#include "hotset/cuda/runtime.hpp"

namespace hotset::cuda {

/// A new thread's current device is 0, whatever its maker's was. Costs one call where nothing changes.
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

}  // namespace hotset::cuda
