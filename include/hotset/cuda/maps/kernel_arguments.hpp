// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a launch looks at before a kernel is started: the arrays it is given, their alignment and their overlaps.

#include <cstddef>
#include <cstdint>

#include "hotset/version.hpp"

namespace hotset::cuda {

/// An array in device memory. Its address is looked at, never its contents.
class device_range {
 public:
  device_range() = default;
  template <class T>
  device_range(const T* data, std::int64_t count) noexcept
      : begin_(reinterpret_cast<std::uintptr_t>(data)),
        bytes_(static_cast<std::uintptr_t>(count) * sizeof(T)),
        is_aligned_(begin_ % alignof(T) == 0) {}

  /// An array of nothing may be anywhere; another has an address, aligned for its type.
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

 private:
  std::uintptr_t begin_ = 0;
  std::uintptr_t bytes_ = 0;
  bool is_aligned_ = true;
};

}  // namespace hotset::cuda
