// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The arrays of a slot bank: at fixed addresses, with memory for the held slots only (elastic), or for all slots.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/memory_budget.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/status.hpp"
#include "hotset/transfer/memory/slot_bank_layout.hpp"
#include "hotset/transfer/memory/virtual_memory.hpp"

namespace hotset {

/// Memory comes in blocks of one slot each, rounded up to the granularity. An array has at most one block more than
/// its held slots fill. The budget counts the bytes of the slots; `bytes` counts the bytes of the blocks. Threads:
/// compatible. Cost: one platform call for each block that is added or removed.
template <virtual_memory Memory>
class elastic_arrays {
 public:
  /// Holds no slot at first. `tail`: bytes behind the last held slot that a wide read may touch. Pre: `memory` and
  /// `budget` outlive the arrays. Errors: no addresses are available.
  static result<elastic_arrays> create(Memory& memory, memory_budget& budget,
                                       const slot_bank_layout& places, std::size_t tail = 0) {
    elastic_arrays out(budget, places);
    for (const auto& place : places.arrays()) {
      const auto unit = memory.granularity();
      const auto block = (place.stride + unit - 1) / unit * unit;
      const auto most = std::max<std::size_t>(1, blocks(place.slots, place.stride, tail, block));
      auto range = virtual_range<Memory>::reserve(memory, most * block);
      if (!range) return range.error();
      out.arrays_.push_back({*std::move(range), place.stride, tail, block});
      if (place.size_class >= out.held_.size()) out.held_.resize(place.size_class + 1, 0);
    }
    return out;
  }
  elastic_arrays(elastic_arrays&&) noexcept = default;
  elastic_arrays& operator=(elastic_arrays&&) = delete;
  /// Pre: no reads or writes of the arrays are outstanding.
  ~elastic_arrays() {
    for (std::size_t c = 0; c < held_.size(); ++c) (void)hold(c, 0);
  }

  /// Address of the array's first slot. It never changes.
  [[nodiscard]] std::byte* base(std::size_t array) const noexcept {
    return arrays_[array].range.addresses().data();
  }
  /// See slot_bank.
  [[nodiscard]] std::size_t held(std::size_t size_class) const noexcept {
    return size_class < held_.size() ? held_[size_class] : 0;
  }
  status hold(std::size_t size_class, std::size_t slots) noexcept {
    if (size_class >= held_.size() || slots > places_.slots_of(size_class))
      return status::invalid_argument;
    const auto before = held_[size_class];
    const auto one = places_.slot_bytes(size_class);
    if (slots > before && !budget_->take((slots - before) * one)) return status::exceeds_memory;
    if (resize_all(size_class, slots) != memory_status::ok) {
      (void)resize_all(size_class, before);
      budget_->give_back((slots - before) * one);
      return status::exceeds_memory;
    }
    if (slots < before) budget_->give_back((before - slots) * one);
    held_[size_class] = slots;
    return status::ok;
  }
  /// Bytes of all memory behind the addresses.
  [[nodiscard]] std::uint64_t bytes() const noexcept {
    std::uint64_t bytes = 0;
    for (const auto& a : arrays_) bytes += a.range.mapped_bytes();
    return bytes;
  }

 private:
  struct growing_array {
    virtual_range<Memory> range;
    std::size_t stride = 0;
    std::size_t tail = 0;
    std::size_t block = 0;

    memory_status resize(std::size_t slots_with_memory) noexcept {
      const auto has = range.mapped_bytes() / block;
      const auto wants = blocks(slots_with_memory, stride, tail, block);
      if (wants > has) return range.populate(has * block, block, wants - has);
      // If the platform refuses to unmap now, the next change or the destructor tries again.
      if (wants < has) (void)range.unmap(wants * block, (has - wants) * block);
      return memory_status::ok;
    }
  };

  elastic_arrays(memory_budget& budget, const slot_bank_layout& places)
      : budget_(&budget), places_(places) {}

  static std::size_t blocks(std::size_t slots, std::size_t stride, std::size_t tail,
                            std::size_t block) noexcept {
    return slots == 0 ? 0 : (slots * stride + tail + block - 1) / block;
  }
  memory_status resize_all(std::size_t size_class, std::size_t slots) noexcept {
    for (std::size_t a = 0; a < arrays_.size(); ++a) {
      if (places_.arrays()[a].size_class != size_class) continue;
      if (const auto code = arrays_[a].resize(slots); code != memory_status::ok) return code;
    }
    return memory_status::ok;
  }

  memory_budget* budget_;
  slot_bank_layout places_;
  std::vector<growing_array> arrays_;
  std::vector<std::size_t> held_;  ///< slots by size class
};

/// A slot bank without its copy functions: base of host and device banks.
template <virtual_memory Memory>
class bank_slots {
 public:
  /// The reason why a cache of `layout` cannot use this bank, or nothing if it can.
  [[nodiscard]] validation check(const pool_layout& layout) const { return places_.check(layout); }
  [[nodiscard]] std::size_t slots() const noexcept { return places_.slots(); }
  /// Number of tensors of an expert in the slot.
  [[nodiscard]] std::size_t tensors(slot_id slot) const noexcept { return places_.tensors(slot); }
  /// Pre: slot and tensor in range. Only the bytes of a held slot may be accessed.
  [[nodiscard]] std::span<std::byte> bytes(slot_id slot, std::size_t tensor) const noexcept {
    const auto where = places_.at(slot, tensor);
    return {first_[where.array] + where.offset, where.bytes};
  }
  /// A kernel computes a slot's address as base(array) + places().local(slot) * places().arrays()[array].stride.
  [[nodiscard]] const slot_bank_layout& places() const noexcept { return places_; }
  [[nodiscard]] std::byte* base(std::size_t array) const noexcept { return first_[array]; }

  /// See slot_bank. A bank that is not elastic holds all slots and refuses `hold` as invalid_argument.
  [[nodiscard]] std::uint64_t slot_bytes(std::size_t size_class) const noexcept {
    return places_.slot_bytes(size_class);
  }
  [[nodiscard]] std::size_t held(std::size_t size_class) const noexcept {
    return elastic_ ? elastic_->held(size_class) : places_.slots_of(size_class);
  }
  status hold(std::size_t size_class, std::size_t slots) noexcept {
    return elastic_ ? elastic_->hold(size_class, slots) : status::invalid_argument;
  }
  [[nodiscard]] bool is_elastic() const noexcept { return elastic_.has_value(); }

 protected:
  explicit bank_slots(slot_bank_layout places) : places_(std::move(places)) {}
  /// `own`: null, or `memory`, which the bank then owns.
  validation reserve(Memory& memory, memory_budget& budget, std::size_t tail,
                     std::unique_ptr<Memory> own = nullptr) {
    auto elastic = elastic_arrays<Memory>::create(memory, budget, places_, tail);
    if (!elastic) return elastic.error();
    own_ = std::move(own);
    elastic_.emplace(*std::move(elastic));
    for (std::size_t a = 0; a < places_.arrays().size(); ++a) first_.push_back(elastic_->base(a));
    return std::nullopt;
  }

  slot_bank_layout places_;
  std::vector<std::byte*> first_;  ///< [arrays] address of the first slot
  std::unique_ptr<Memory> own_;
  std::optional<elastic_arrays<Memory>> elastic_;
};

}  // namespace hotset
