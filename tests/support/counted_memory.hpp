// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Counts and refuses a program's allocations through the operators new of allocation.hpp.

#include <atomic>
#include <cstddef>

namespace hotset::support {

inline std::atomic<std::size_t> allocations{0};
/// The n-th allocation from now on is refused, and all later ones if `refuse_all_later`. 0: none.
inline std::atomic<std::size_t> refused_allocation{0};
inline std::atomic<bool> refuse_all_later{false};
inline std::atomic<bool> was_refused{false};

/// Whether to refuse the current allocation.
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

/// Refuses the n-th allocation of the program during the object's lifetime.
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
