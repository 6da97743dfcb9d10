// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Counts allocations of the tested calls, in a program of which one file includes allocation.hpp.

#include <cstddef>
#include <utility>

namespace hotset::support {

struct allocation_watch {
  static inline bool watching = false;
  static inline std::size_t count = 0;
};

/// Number of allocations during a call of the tested part.
template <class Call>
std::size_t allocations_of(Call call) {
  allocation_watch::count = 0;
  const bool before = std::exchange(allocation_watch::watching, true);
  call();
  allocation_watch::watching = before;
  return allocation_watch::count;
}
/// Excludes allocations of the test's own callbacks from the count.
class unwatched_allocations {
 public:
  unwatched_allocations() noexcept : before_(std::exchange(allocation_watch::watching, false)) {}
  unwatched_allocations(const unwatched_allocations&) = delete;
  unwatched_allocations& operator=(const unwatched_allocations&) = delete;
  ~unwatched_allocations() { allocation_watch::watching = before_; }

 private:
  bool before_;
};

}  // namespace hotset::support
