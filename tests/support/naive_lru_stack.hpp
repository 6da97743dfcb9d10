// SPDX-License-Identifier: Apache-2.0
#pragma once
/// An LRU stack as a list that is searched from the top: the reference for the fast ones.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace hotset::support {

class naive_lru_stack {
 public:
  /// 1 for the key touched last; 0 for a key never touched.
  [[nodiscard]] std::uint32_t distance(std::size_t key) const {
    const auto at = std::find(keys_.rbegin(), keys_.rend(), key);
    return at == keys_.rend() ? 0 : static_cast<std::uint32_t>(at - keys_.rbegin()) + 1;
  }
  void touch(std::size_t key) {
    forget(key);
    keys_.push_back(key);
  }
  void forget(std::size_t key) { std::erase(keys_, key); }
  [[nodiscard]] std::size_t size() const { return keys_.size(); }

 private:
  std::vector<std::size_t> keys_;  ///< the last element is the top of the stack
};

}  // namespace hotset::support
