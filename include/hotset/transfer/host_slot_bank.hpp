// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Slot memory on the host.

#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/expert_layout.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/transfer/slot_bank_layout.hpp"

namespace hotset::inline v0 {

/// Addresses are stable for the bank's life. Memory: slots * expert bytes, padded to cache lines.
class host_slot_bank {
 public:
  /// Errors: those of slot_bank_layout.
  static result<host_slot_bank> create(const pool_layout& layout,
                                       const std::vector<expert_layout>& layouts) noexcept {
    auto places = slot_bank_layout::create(layout, layouts, alignment);
    if (!places) return places.reason();
    return host_slot_bank(*std::move(places));
  }

  [[nodiscard]] std::size_t slots() const noexcept { return places_.slots(); }
  /// Tensors of the experts that the slot can hold.
  [[nodiscard]] std::size_t tensors(slot_id slot) const noexcept { return places_.tensors(slot); }
  /// Pre: slot and tensor in range.
  [[nodiscard]] std::span<std::byte> bytes(slot_id slot, std::size_t tensor) const noexcept {
    const auto where = places_.at(slot, tensor);
    return {memory_[where.array].get() + where.offset, where.bytes};
  }

 private:
  static constexpr std::size_t alignment = 64;
  struct aligned_delete {
    void operator()(std::byte* p) const noexcept {
      ::operator delete (p, std::align_val_t{alignment});
    }
  };

  explicit host_slot_bank(slot_bank_layout places) : places_(std::move(places)) {
    for (const auto& array : places_.arrays())
      memory_.emplace_back(
          static_cast<std::byte*>(::operator new (array.total(), std::align_val_t{alignment})));
  }

  slot_bank_layout places_;
  std::vector<std::unique_ptr<std::byte[], aligned_delete>> memory_;  ///< [arrays]
};

}  // namespace hotset::inline v0
