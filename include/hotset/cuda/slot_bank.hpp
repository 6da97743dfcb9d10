// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Slot memory on a device: one array for each tensor of each size class. It is allocated once, or as slots are held.

#include <cstddef>
#include <cstdint>
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

/// Addresses are stable for the bank's life, so captured graphs may hold them. The memory is not cleared: slots are
/// never read before a fill.
class slot_bank : public bank_slots<virtual_memory> {
 public:
  struct config {
    int device = 0;
    std::size_t alignment = 256;     ///< alignment of every slot in bytes; a power of two
    std::size_t tail_padding = 256;  ///< bytes after each array that a wide read may touch
    std::size_t beside = 0;          ///< extra slots for the engine, numbered after the cache's
  };

  /// Errors: those of slot_bank_layout; those of the runtime (nothing is leaked).
  static result<slot_bank> create(runtime& api, const pool_layout& layout,
                                  const std::vector<expert_layout>& layouts, const config& setup) {
    auto bank = without_memory(api, layout, layouts, setup);
    if (!bank) return bank;
    auto& made = *bank;
    const device_scope scope(api, setup.device);
    if (scope.what().happened()) return describe(api, scope.what());
    // Reserved first, so that no error can occur between allocating memory and keeping it.
    made.memory_.reserve(made.places_.arrays().size());
    made.first_.reserve(made.places_.arrays().size());
    for (const auto& array : made.places_.arrays()) {
      const auto bytes = array.total() + setup.tail_padding;
      auto memory = allocate_memory(api, bytes,
                                    std::to_string(array.slots) + " slots of tensor '" +
                                        layouts[array.size_class].tensors[array.tensor].name + "'");
      if (!memory) return memory.error();
      made.first_.push_back(static_cast<std::byte*>(memory->get()));
      made.memory_.push_back(*std::move(memory));
      made.bytes_ += bytes;
    }
    return bank;
  }
  /// Creates a bank that holds no slot yet: `hold` takes device memory, counted by `budget`. Addresses are stable, so
  /// captured graphs survive a resize. `memory` must be of `setup.device`; `memory` and `budget` must outlive the
  /// bank. Errors: those of `create`; no address space.
  static result<slot_bank> create_elastic(runtime& api, virtual_memory& memory,
                                          const pool_layout& layout,
                                          const std::vector<expert_layout>& layouts,
                                          memory_budget& budget, const config& setup) {
    if (memory.device() != setup.device)
      return refusal("virtual memory of device ", memory.device(), ", accepted: of device ",
                     setup.device);
    auto made = without_memory(api, layout, layouts, setup);
    if (!made) return made;
    if (auto bad = made->reserve(memory, budget, setup.tail_padding)) return *std::move(bad);
    return made;
  }
  [[nodiscard]] int device() const noexcept { return device_; }
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
  /// Units: bytes of device memory, padding included.
  [[nodiscard]] std::uint64_t device_bytes() const noexcept {
    return elastic_ ? elastic_->bytes() : bytes_;
  }

 private:
  slot_bank(runtime& api, int device, slot_bank_layout places)
      : bank_slots(std::move(places)), api_(api), device_(device) {}
  static result<slot_bank> without_memory(runtime& api, const pool_layout& layout,
                                          const std::vector<expert_layout>& layouts,
                                          const config& setup) {
    if (setup.alignment == 0 || (setup.alignment & (setup.alignment - 1)) != 0)
      return refusal("a slot alignment of ", setup.alignment, ", accepted: a power of two");
    auto places = slot_bank_layout::create(layout, layouts, setup.alignment, setup.beside);
    if (!places) return places.error();
    return slot_bank(api, setup.device, *std::move(places));
  }

  runtime& api_;
  int device_;
  std::vector<owned_memory> memory_;  ///< [arrays] if memory is allocated once
  std::uint64_t bytes_ = 0;
};

}  // namespace hotset::cuda
