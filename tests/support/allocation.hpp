// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Counts a test program's allocations and its peak, and refuses allocations as counted_memory.hpp says. Replaces the
/// operators new and delete of the whole program: only one file of an executable may include it.

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

#include <malloc.h>

#include "counted_memory.hpp"
#include "watched_allocations.hpp"

namespace hotset::support {

struct allocation_count {
  static inline std::atomic<std::size_t> live{0};
  static inline std::atomic<std::size_t> most{0};

  static void* take(std::size_t size, std::size_t alignment) {
    if (allocation_watch::watching) ++allocation_watch::count;
    ++allocations;
    if (refuse_allocation()) throw std::bad_alloc();
    size = (size + alignment - 1) / alignment * alignment;
    void* const p = std::aligned_alloc(alignment, size == 0 ? alignment : size);
    if (p == nullptr) throw std::bad_alloc();
    const auto now = live += ::malloc_usable_size(p);
    auto before = most.load();
    while (now > before && !most.compare_exchange_weak(before, now)) {
    }
    return p;
  }
  static void* take_or_null(std::size_t size, std::size_t alignment) noexcept {
    try {
      return take(size, alignment);
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }
  [[gnu::noinline]] static void give(void* p) noexcept {
    if (p != nullptr) live -= ::malloc_usable_size(p);
    std::free(p);
  }
};

/// Peak number of bytes that call() allocated, above the bytes allocated before.
template <class Call>
std::size_t most_allocated(Call call) {
  const auto before = allocation_count::live.load();
  allocation_count::most = before;
  call();
  return allocation_count::most - before;
}

}  // namespace hotset::support

void* operator new(std::size_t size) {
  return hotset::support::allocation_count::take(size, alignof(std::max_align_t));
}
void* operator new[](std::size_t size) {
  return hotset::support::allocation_count::take(size, alignof(std::max_align_t));
}
void* operator new(std::size_t size, std::align_val_t a) {
  return hotset::support::allocation_count::take(size, static_cast<std::size_t>(a));
}
void* operator new[](std::size_t size, std::align_val_t a) {
  return hotset::support::allocation_count::take(size, static_cast<std::size_t>(a));
}
// A sanitizer has its own nothrow operators, which do not call those above.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return hotset::support::allocation_count::take_or_null(size, alignof(std::max_align_t));
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return hotset::support::allocation_count::take_or_null(size, alignof(std::max_align_t));
}
void* operator new(std::size_t size, std::align_val_t a, const std::nothrow_t&) noexcept {
  return hotset::support::allocation_count::take_or_null(size, static_cast<std::size_t>(a));
}
void operator delete(void* p) noexcept { hotset::support::allocation_count::give(p); }
void operator delete[](void* p) noexcept { hotset::support::allocation_count::give(p); }
void operator delete(void* p, std::size_t) noexcept { hotset::support::allocation_count::give(p); }
void operator delete[](void* p, std::size_t) noexcept {
  hotset::support::allocation_count::give(p);
}
void operator delete(void* p, std::align_val_t) noexcept {
  hotset::support::allocation_count::give(p);
}
void operator delete[](void* p, std::align_val_t) noexcept {
  hotset::support::allocation_count::give(p);
}
void operator delete(void* p, std::size_t, std::align_val_t) noexcept {
  hotset::support::allocation_count::give(p);
}
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept {
  hotset::support::allocation_count::give(p);
}
void operator delete(void* p, const std::nothrow_t&) noexcept {
  hotset::support::allocation_count::give(p);
}
void operator delete[](void* p, const std::nothrow_t&) noexcept {
  hotset::support::allocation_count::give(p);
}
