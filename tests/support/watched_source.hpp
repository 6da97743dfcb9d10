// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A source that records the requested experts, and lets a test act on the copying thread between two chunks.

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "hotset/transfer/memory_expert_source.hpp"

namespace hotset::support {

/// Read `asked` only while no copy is running.
class watched_source {
 public:
  explicit watched_source(const memory_expert_source& inner) : inner_(inner) {}
  [[nodiscard]] std::span<const tensor_bytes> tensors(expert_key key,
                                                      precision_id precision) const noexcept {
    asked.push_back(key);
    if (on_ask) on_ask(asked.size());
    return inner_.tensors(key, precision);
  }
  mutable std::vector<expert_key> asked{};          ///< once per chunk
  std::function<void(std::size_t asked)> on_ask{};  ///< set it before the first submit

 private:
  const memory_expert_source& inner_;
};

}  // namespace hotset::support
