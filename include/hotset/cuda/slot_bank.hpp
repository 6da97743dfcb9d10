// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Slot memory on a device: one array for each tensor of each size class; all of it for good, or as much as is held at a time.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/memory_budget.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/status.hpp"
#include "hotset/cuda/runtime.hpp"
#include "hotset/cuda/stream.hpp"
#include "hotset/cuda/virtual_memory.hpp"
#include "hotset/transfer/memory/elastic_arrays.hpp"
#include "hotset/transfer/memory/slot_bank_layout.hpp"

namespace hotset::cuda {

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
    auto bank = without_memory(api, layout, layouts, setup);
    if (!bank) return bank;
    auto& made = *bank;
    const device_scope scope(api, setup.device);
    if (scope.what().happened()) return describe(api, scope.what());
    made.memory_.reserve(
        made.places_.arrays().size());  // nothing is refused between taking and keeping
    for (const auto& array : made.places_.arrays()) {
      const auto bytes = array.total() + setup.tail_padding;
      auto memory = allocate_memory(api, bytes,
                                    std::to_string(array.slots) + " slots of tensor '" +
                                        layouts[array.size_class].tensors[array.tensor].name + "'");
      if (!memory) return memory.error();
      made.memory_.push_back(*std::move(memory));
      made.bytes_ += bytes;
    }
    return bank;
  }
  /// No slot is held yet: `hold` takes memory of the device from `budget`. Addresses stay, so captured graphs outlive a
  /// resize. `memory`, of `setup.device`, and `budget` outlive the bank. Errors: as `create`; no addresses to be had.
  static result<slot_bank> create_elastic(runtime& api, virtual_memory& memory,
                                          const pool_layout& layout,
                                          const std::vector<expert_layout>& layouts,
                                          memory_budget& budget, const config& setup) {
    if (memory.device() != setup.device)
      return error{"virtual memory of device " + std::to_string(memory.device()) +
                   ", accepted: of device " + std::to_string(setup.device)};
    auto made = without_memory(api, layout, layouts, setup);
    if (!made) return made;
    auto elastic =
        elastic_arrays<virtual_memory>::create(memory, budget, made->places_, setup.tail_padding);
    if (!elastic) return elastic.error();
    made->elastic_.emplace(*std::move(elastic));
    return made;
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
    return {base(where.array) + where.offset, where.bytes};
  }
  /// As hotset::slot_bank says. Of a bank that is not elastic all slots are held, and `hold` is an invalid_argument.
  [[nodiscard]] std::uint64_t slot_bytes(std::size_t size_class) const noexcept {
    return places_.slot_bytes(size_class);
  }
  [[nodiscard]] std::size_t held(std::size_t size_class) const noexcept {
    return elastic_ ? elastic_->held(size_class) : places_.slots_of(size_class);
  }
  status hold(std::size_t size_class, std::size_t slots) noexcept {
    return elastic_ ? elastic_->hold(size_class, slots) : status::invalid_argument;
  }
  status copy_slot(slot_id from, slot_id to, const stream& on) noexcept {
    const device_scope scope(api_, device_);
    for (std::size_t t = 0; t < tensors(from); ++t) {
      const auto bytes = this->bytes(from, t);
      if (api_.copy_on_device({this->bytes(to, t).data(), bytes.data(), bytes.size()},
                              on.handle()) != error_code::success)
        return status::fill_failed;
    }
    return status::ok;
  }
  status finish(const stream& on) noexcept {
    return api_.synchronize_stream(on.handle()) == error_code::success ? status::ok
                                                                       : status::fill_failed;
  }
  [[nodiscard]] bool is_elastic() const noexcept { return elastic_.has_value(); }
  /// A kernel finds a slot at base(array) + places().local(slot) * places().arrays()[array].stride.
  [[nodiscard]] const slot_bank_layout& places() const noexcept { return places_; }
  [[nodiscard]] std::byte* base(std::size_t array) const noexcept {
    return elastic_ ? elastic_->base(array) : static_cast<std::byte*>(memory_[array].get());
  }
  /// Units: bytes of device memory, padding included.
  [[nodiscard]] std::uint64_t device_bytes() const noexcept {
    return elastic_ ? elastic_->bytes() : bytes_;
  }

 private:
  slot_bank(runtime& api, int device, slot_bank_layout places)
      : api_(api), device_(device), places_(std::move(places)) {}
  static result<slot_bank> without_memory(runtime& api, const pool_layout& layout,
                                          const std::vector<expert_layout>& layouts,
                                          const config& setup) {
    if (setup.alignment == 0 || (setup.alignment & (setup.alignment - 1)) != 0)
      return error{"a slot alignment of " + std::to_string(setup.alignment) +
                   ", accepted: a power of two"};
    auto places = slot_bank_layout::create(layout, layouts, setup.alignment, setup.beside);
    if (!places) return places.error();
    return slot_bank(api, setup.device, *std::move(places));
  }

  runtime& api_;
  int device_;
  slot_bank_layout places_;
  std::vector<owned_memory> memory_;  ///< [arrays] of a bank that holds all for good
  std::optional<elastic_arrays<virtual_memory>> elastic_;
  std::uint64_t bytes_ = 0;
};

}  // namespace hotset::cuda
