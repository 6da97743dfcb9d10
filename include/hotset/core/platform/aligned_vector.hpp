// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A vector aligned to 64 bytes, for the widest vector loads.

#include <cstddef>
#include <new>
#include <vector>

#include "hotset/version.hpp"

namespace hotset {

/// Allocates memory aligned to 64 bytes.
template <class T>
struct aligned_allocator {
  using value_type = T;
  static constexpr std::align_val_t alignment{64};

  aligned_allocator() = default;
  template <class Other>
  aligned_allocator(const aligned_allocator<Other>&) noexcept {
  }  // NOLINT(google-explicit-constructor)

  /// Pre: `count` elements fit into the address space; std::vector guarantees this.
  [[nodiscard]] T* allocate(std::size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T), alignment));
  }
  void deallocate(T* at, std::size_t /*count*/) noexcept { ::operator delete(at, alignment); }
  friend bool operator==(const aligned_allocator&, const aligned_allocator&) = default;
};

/// A vector whose first element is aligned to 64 bytes.
template <class T>
using aligned_vector = std::vector<T, aligned_allocator<T>>;

}  // namespace hotset
