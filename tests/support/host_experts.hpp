// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Experts in host memory whose every byte tells which expert and tensor it belongs to.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "hotset/testing/gate.hpp"
#include "hotset/transfer/memory/host_slot_bank.hpp"
#include "hotset/transfer/memory_expert_source.hpp"

namespace hotset::support {

inline std::byte pattern(expert_key key, std::size_t tensor, std::size_t at) {
  const auto mixed =
      (static_cast<std::size_t>(key.layer) * 131 + static_cast<std::size_t>(key.expert)) * 7 +
      tensor * 53 + at * 3 + 1;
  return static_cast<std::byte>(mixed % 251);
}
inline bool holds(std::span<const std::byte> bytes, expert_key key, std::size_t tensor) {
  for (std::size_t at = 0; at < bytes.size(); ++at)
    if (bytes[at] != pattern(key, tensor, at)) return false;
  return true;
}

/// All experts of a model of one size class, and a bank for its slots.
class host_experts {
 public:
  explicit host_experts(const pool_layout& layout,
                        std::vector<std::uint64_t> tensor_bytes_of = {96, 33, 257})
      : layouts_{{}},
        source(make_source(layout.shape(), tensor_bytes_of)),
        bank(make_bank(layout)) {
    const auto& shape = layout.shape();
    for (std::size_t k = 0; k < shape.keys(); ++k) {
      const auto key = shape.key(k);
      auto& tensors = bytes_.emplace_back();
      for (std::size_t t = 0; t < tensor_bytes_of.size(); ++t) {
        tensors.emplace_back(tensor_bytes_of[t]);
        for (std::size_t at = 0; at < tensors[t].size(); ++at) tensors[t][at] = pattern(key, t, at);
      }
      add(key, shape);
    }
  }
  void add(expert_key key, const geometry& shape) {
    std::vector<tensor_bytes> views;
    for (const auto& t : bytes_[shape.index(key)]) views.emplace_back(t);
    EXPECT_FALSE(source.add(key, views));
  }
  [[nodiscard]] bool holds(slot_id slot, expert_key key) const {
    for (std::size_t t = 0; t < bank.tensors(slot); ++t)
      if (!support::holds(bank.bytes(slot, t), key, t)) return false;
    return true;
  }

 private:
  memory_expert_source make_source(const geometry& shape, const std::vector<std::uint64_t>& sizes) {
    for (const auto size : sizes) layouts_[0].tensors.push_back({"tensor", size});
    return memory_expert_source::create(shape, layouts_).value();
  }
  host_slot_bank make_bank(const pool_layout& layout) {
    return host_slot_bank::create(layout, layouts_).value();
  }

  std::vector<expert_layout> layouts_;
  std::vector<std::vector<std::vector<std::byte>>> bytes_;

 public:
  memory_expert_source source;
  host_slot_bank bank;
};

using suites::gate;

}  // namespace hotset::support
