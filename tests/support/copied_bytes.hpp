// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Host bytes, page-locked or pageable, and device memory of the same size as the target of their copy.

#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "hotset/cuda/runtime.hpp"

namespace hotset::support {

/// No host byte is 0; every device byte is 0 at first.
class copied_bytes {
 public:
  copied_bytes(cuda::runtime& api, std::size_t size, bool page_locked) : api_(api) {
    void* memory = nullptr;
    EXPECT_EQ(api.allocate(memory, size), cuda::error_code::success);
    device_ = static_cast<std::byte*>(memory);
    if (page_locked) {
      EXPECT_EQ(api.allocate_host(memory, size), cuda::error_code::success);
      host_ = {static_cast<std::byte*>(memory), size};
    } else {
      pageable_.resize(size);
      host_ = pageable_;
    }
    for (std::size_t i = 0; i < size; ++i) host_[i] = static_cast<std::byte>(1 + i % 251);
  }
  copied_bytes(const copied_bytes&) = delete;
  copied_bytes& operator=(const copied_bytes&) = delete;
  ~copied_bytes() {
    if (pageable_.empty()) (void)api_.free_host(host_.data());
    (void)api_.free(device_);
  }

  [[nodiscard]] std::span<const std::byte> host(std::size_t at, std::size_t bytes) const {
    return host_.subspan(at, bytes);
  }
  [[nodiscard]] std::byte* device(std::size_t at = 0) const { return device_ + at; }
  [[nodiscard]] cuda::copy_request copy(std::size_t at, std::size_t bytes) const {
    return {device_ + at, host_.data() + at, bytes};
  }
  [[nodiscard]] bool arrived(std::size_t at, std::size_t bytes) const {
    return std::memcmp(device_ + at, host_.data() + at, bytes) == 0;
  }
  void clear_device() const { std::memset(device_, 0, host_.size()); }

 private:
  cuda::runtime& api_;
  std::vector<std::byte> pageable_;
  std::span<std::byte> host_;
  std::byte* device_ = nullptr;
};

}  // namespace hotset::support
