// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Slot memory on a device: one array for each tensor of each size class.

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/expert_layout.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/cuda/device_scope.hpp"
#include "hotset/cuda/runtime.hpp"
#include "hotset/memory/slot_bank_layout.hpp"

namespace hotset::inline v0::cuda {

/// Addresses are stable for the bank's life, so captured graphs may hold them. Slots are never read before a fill, so
/// the memory is not cleared.
class slot_bank {
 public:
  struct config {
    int device = 0;
    std::size_t alignment = 256;     ///< of every slot; a power of two
    std::size_t tail_padding = 256;  ///< bytes behind each array that a wide read may touch
    std::size_t beside = 0;          ///< slots of the engine's own, numbered after the cache's
  };

  /// Errors: those of slot_bank_layout; what the runtime said (nothing is left behind).
  static result<slot_bank> create(runtime& api, const pool_layout& layout,
                                  const std::vector<expert_layout>& layouts, const config& setup) {
    if (setup.alignment == 0 || (setup.alignment & (setup.alignment - 1)) != 0)
      return error{"a slot alignment of " + std::to_string(setup.alignment) +
                   ", accepted: a power of two"};
    auto places = slot_bank_layout::create(layout, layouts, setup.alignment, setup.beside);
    if (!places) return places.reason();
    const device_scope scope(api, setup.device);
    if (scope.what().happened()) return describe(api, scope.what());
    slot_bank made(api, setup.device, *std::move(places));
    made.memory_.reserve(
        made.places_.arrays().size());  // nothing is refused between taking and keeping
    for (const auto& array : made.places_.arrays()) {
      void* memory = nullptr;
      const auto bytes = array.total() + setup.tail_padding;
      if (const auto code = api.allocate(memory, bytes); code != error_code::success)
        return error{"cannot take " + std::to_string(bytes) + " bytes for " +
                     std::to_string(array.slots) + " slots of tensor '" +
                     layouts[array.size_class].tensors[array.tensor].name +
                     "': " + describe(api, {code, "cudaMalloc"}).message};
      made.memory_.push_back(static_cast<std::byte*>(memory));
      made.bytes_ += bytes;
    }
    return made;
  }
  slot_bank(slot_bank&& other) noexcept
      : api_(other.api_),
        device_(other.device_),
        places_(std::move(other.places_)),
        memory_(std::exchange(other.memory_, {})),
        bytes_(other.bytes_) {}
  slot_bank& operator=(slot_bank&&) = delete;
  ~slot_bank() {
    for (auto* const memory : memory_) (void)api_.free(memory);
  }

  [[nodiscard]] int device() const noexcept { return device_; }
  /// Why a cache of `layout` cannot live here; nothing if it can.
  [[nodiscard]] validation check(const pool_layout& layout) const { return places_.check(layout); }
  [[nodiscard]] std::size_t slots() const noexcept { return places_.slots(); }
  /// Tensors of the experts that the slot can hold.
  [[nodiscard]] std::size_t tensors(slot_id slot) const noexcept { return places_.tensors(slot); }
  /// Device memory. Pre: slot and tensor in range.
  [[nodiscard]] std::span<std::byte> bytes(slot_id slot, std::size_t tensor) const noexcept {
    const auto where = places_.at(slot, tensor);
    return {memory_[where.array] + where.offset, where.bytes};
  }
  /// A kernel finds a slot at base(array) + places().local(slot) * places().arrays()[array].stride.
  [[nodiscard]] const slot_bank_layout& places() const noexcept { return places_; }
  [[nodiscard]] std::byte* base(std::size_t array) const noexcept { return memory_[array]; }
  /// Units: bytes of device memory, padding included.
  [[nodiscard]] std::uint64_t device_bytes() const noexcept { return bytes_; }

 private:
  slot_bank(runtime& api, int device, slot_bank_layout places)
      : api_(api), device_(device), places_(std::move(places)) {}

  runtime& api_;
  int device_;
  slot_bank_layout places_;
  std::vector<std::byte*> memory_;  ///< [arrays]
  std::uint64_t bytes_ = 0;
};

}  // namespace hotset::inline v0::cuda
