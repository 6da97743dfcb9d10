// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Experts in host memory whose bytes identify their expert and tensor.

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

/// A source of all experts of a model; `bytes` stores their patterned bytes.
inline memory_expert_source patterned_source(const geometry& shape,
                                             const std::vector<expert_layout>& layouts,
                                             std::vector<std::vector<std::byte>>& bytes) {
  auto out = memory_expert_source::create(shape, layouts).value();
  for (std::size_t k = 0; k < shape.keys(); ++k) {
    const auto key = shape.key(k);
    std::vector<tensor_bytes> views;
    for (const auto& tensor : out.layout_of(key.layer).tensors) {
      const auto t = views.size();
      auto& made = bytes.emplace_back(tensor.bytes);
      for (std::size_t at = 0; at < made.size(); ++at) made[at] = pattern(key, t, at);
      views.emplace_back(made);
    }
    EXPECT_FALSE(out.add(key, views));
  }
  return out;
}
/// True if each tensor of the slot holds the bytes of the expert.
template <class Bank>
bool slot_holds(const Bank& bank, slot_id slot, expert_key key) {
  for (std::size_t t = 0; t < bank.tensors(slot); ++t)
    if (!holds(bank.bytes(slot, t), key, t)) return false;
  return true;
}
inline std::vector<expert_layout> layouts_of(const std::vector<std::uint64_t>& tensor_bytes_of) {
  std::vector<expert_layout> out(1);
  for (const auto bytes : tensor_bytes_of) out[0].tensors.push_back({"tensor", bytes});
  return out;
}

/// All experts of a model of one size class, and a bank for its slots.
class host_experts {
 public:
  explicit host_experts(const pool_layout& layout,
                        const std::vector<std::uint64_t>& tensor_bytes_of = {96, 33, 257})
      : source(patterned_source(layout.shape(), layouts_of(tensor_bytes_of), bytes_)),
        bank(host_slot_bank::create(layout, layouts_of(tensor_bytes_of)).value()) {}
  void add(expert_key key, const geometry& shape) {
    const auto tensors = source.layout_of(key.layer).tensors.size();
    std::vector<tensor_bytes> views;
    for (std::size_t t = 0; t < tensors; ++t)
      views.emplace_back(bytes_[shape.index(key) * tensors + t]);
    EXPECT_FALSE(source.add(key, views));
  }
  [[nodiscard]] bool holds(slot_id slot, expert_key key) const {
    return slot_holds(bank, slot, key);
  }

 private:
  std::vector<std::vector<std::byte>> bytes_;

 public:
  memory_expert_source source;
  host_slot_bank bank;
};

using suites::gate;

}  // namespace hotset::support
