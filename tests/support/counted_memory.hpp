// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Allocations of a program with the operators new of allocation.hpp, which count and refuse them.

#include <atomic>
#include <cstddef>

namespace hotset::support {

inline std::atomic<std::size_t> allocations{0};
/// The n-th allocation from now on is refused, and with `refuse_all_later` all after it; 0: none.
inline std::atomic<std::size_t> refused_allocation{0};
inline std::atomic<bool> refuse_all_later{false};
inline std::atomic<bool> was_refused{false};

/// Whether the allocation under way is to be refused.
inline bool refuse_allocation() noexcept {
  if (refused_allocation == 0) return false;
  if (refused_allocation > 1) {
    --refused_allocation;
    return false;
  }
  if (!refuse_all_later) refused_allocation = 0;
  was_refused = true;
  return true;
}

/// While it lives the n-th allocation of the program is refused.
class refused_memory {
 public:
  explicit refused_memory(std::size_t nth, bool and_all_later = false) {
    was_refused = false;
    refuse_all_later = and_all_later;
    refused_allocation = nth;
  }
  refused_memory(const refused_memory&) = delete;
  refused_memory& operator=(const refused_memory&) = delete;
  ~refused_memory() { refused_allocation = 0; }
  [[nodiscard]] static bool happened() noexcept { return was_refused; }
};

}  // namespace hotset::support
