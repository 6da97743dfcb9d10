// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Slot memory on the host: for each tensor of each size class, one array with a place per slot.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/expert_layout.hpp"
#include "hotset/core/pool_layout.hpp"

namespace hotset::inline v0 {

/// Addresses are stable for the bank's life. Memory: slots * expert bytes, padded to cache lines.
class host_slot_bank {
 public:
  /// `layouts[c]` describes the experts of size class c; a pool may serve one class only.
  static result<host_slot_bank> create(const pool_layout& layout,
                                       const std::vector<expert_layout>& layouts) noexcept {
    const auto classes = layout.shape().size_classes();
    host_slot_bank out;
    out.places_.resize(layout.slots());
    for (std::size_t p = 0; p < layout.pools(); ++p) {
      const auto& pool = layout.at(static_cast<pool_id>(p));
      const auto c = static_cast<std::size_t>(pool.size_class);
      for (const auto l : pool.layers)
        if (classes[static_cast<std::size_t>(l)] != pool.size_class)
          return error{"pool " + std::to_string(p) +
                       " serves layers of different size classes, accepted: one class a pool"};
      if (c >= layouts.size()) return error{"no layout for size class " + std::to_string(c)};
      if (auto bad = layouts[c].validate()) return *std::move(bad);
      for (auto s = pool.first_slot; s < pool.first_slot + pool.slots; ++s)
        out.places_[static_cast<std::size_t>(s)] = {c, 0};
    }
    out.take_memory(layouts);
    return out;
  }

  [[nodiscard]] std::size_t slots() const noexcept { return places_.size(); }
  /// Tensors of the experts that the slot can hold.
  [[nodiscard]] std::size_t tensors(slot_id slot) const noexcept {
    return bank_of(slot).arrays.size();
  }
  /// Pre: slot and tensor in range.
  [[nodiscard]] std::span<std::byte> bytes(slot_id slot, std::size_t tensor) const noexcept {
    const auto& array = bank_of(slot).arrays[tensor];
    return {array.base + places_[static_cast<std::size_t>(slot)].local * array.stride, array.bytes};
  }

 private:
  static constexpr std::size_t alignment = 64;
  struct place {
    std::size_t size_class = 0;
    std::size_t local = 0;
  };
  struct tensor_array {
    std::byte* base = nullptr;
    std::size_t stride = 0;
    std::size_t bytes = 0;
  };
  struct class_bank {
    std::vector<tensor_array> arrays;
  };
  struct aligned_delete {
    void operator()(std::byte* p) const noexcept {
      ::operator delete (p, std::align_val_t{alignment});
    }
  };

  [[nodiscard]] const class_bank& bank_of(slot_id slot) const noexcept {
    return banks_[places_[static_cast<std::size_t>(slot)].size_class];
  }
  void take_memory(const std::vector<expert_layout>& layouts) {
    std::vector<std::size_t> counts(layouts.size(), 0);
    for (auto& p : places_) p.local = counts[p.size_class]++;
    banks_.resize(layouts.size());
    for (std::size_t c = 0; c < layouts.size(); ++c)
      for (const auto& t : layouts[c].tensors) {
        const auto stride =
            (static_cast<std::size_t>(t.bytes) + alignment - 1) / alignment * alignment;
        const auto size = std::max<std::size_t>(1, counts[c]) * stride;
        memory_.emplace_back(
            static_cast<std::byte*>(::operator new (size, std::align_val_t{alignment})));
        banks_[c].arrays.push_back(
            {memory_.back().get(), stride, static_cast<std::size_t>(t.bytes)});
      }
  }

  std::vector<place> places_;
  std::vector<class_bank> banks_;
  std::vector<std::unique_ptr<std::byte[], aligned_delete>> memory_;
};

}  // namespace hotset::inline v0
