// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Positions of each slot's tensors in memory, and requirements on slot memory that changes its size while a cache
/// uses it.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/status.hpp"

namespace hotset {

/// One array for each tensor of each size class, with one place for each slot. Stores sizes and offsets only; host and
/// device banks allocate the memory.
class slot_bank_layout {
 public:
  /// The places of one tensor in all slots of one size class. Units: bytes.
  struct array {
    std::size_t size_class = 0;
    std::size_t tensor = 0;  ///< index in the class's expert_layout
    std::size_t slots = 0;
    std::size_t bytes = 0;   ///< bytes of one tensor
    std::size_t stride = 0;  ///< from one slot to the next: `bytes`, rounded up to the alignment

    /// Bytes of the array; at least one stride, so that an array without slots has an address.
    [[nodiscard]] std::size_t total() const noexcept {
      return std::max<std::size_t>(1, slots) * stride;
    }
  };
  /// Position of one tensor of one slot.
  struct place {
    std::size_t array = 0;   ///< index in arrays()
    std::size_t offset = 0;  ///< offset of the slot's first byte in the array
    std::size_t bytes = 0;
  };

  /// `layouts[c]` describes the experts of size class c; a pool may serve one class only. With P precisions, precision
  /// p of the layers of class c is size class c * P + p. Every place starts at a multiple of `alignment`, a power of
  /// two. `beside`: additional slots for the engine, numbered after the cache's; only with one size class.
  static result<slot_bank_layout> create(const pool_layout& layout,
                                         const std::vector<expert_layout>& layouts,
                                         std::size_t alignment, std::size_t beside = 0) {
    if (beside != 0 && layouts.size() != 1)
      return refusal("beside = ", beside, " slots with ", layouts.size(),
                     " size classes, accepted: one size class");
    const auto classes = layout.shape().size_classes();
    const auto precisions = layout.precisions();
    slot_bank_layout out;
    out.slots_.resize(layout.slots());
    std::vector<std::size_t> counts(layouts.size(), 0);
    for (std::size_t p = 0; p < layout.pools(); ++p) {
      const auto& pool = layout.at(static_cast<pool_id>(p));
      const auto c = index_of(pool.size_class);
      for (const auto l : pool.layers)
        if (index_of(classes[index_of(l)]) * precisions + index_of(pool.precision) != c)
          return refusal("pool ", p,
                         " serves layers of different size classes, accepted: one class a pool");
      if (c >= layouts.size()) return refusal("no layout for size class ", c);
      if (auto bad = layouts[c].validate()) return *std::move(bad);
      for (auto s = pool.first_slot; s < pool.first_slot + pool.slots; ++s)
        out.slots_[s] = {c, counts[c]++};
    }
    out.beside_ = beside;
    for (std::size_t s = 0; s < beside; ++s) out.slots_.push_back({0, counts[0]++});
    for (std::size_t c = 0; c < layouts.size(); ++c) {
      out.classes_.push_back({out.arrays_.size(), layouts[c].tensors.size()});
      for (std::size_t t = 0; t < layouts[c].tensors.size(); ++t) {
        const auto& tensor = layouts[c].tensors[t];
        // Half of the address space, so that sums of bytes do not overflow.
        const auto most =
            std::numeric_limits<std::size_t>::max() / 2 / std::max<std::size_t>(1, counts[c]);
        if (tensor.bytes > most || most - tensor.bytes < alignment)
          return refusal(counts[c], " slots of tensor '", tensor.name, "' of ", tensor.bytes,
                         " bytes, accepted: less than the address space");
        const auto bytes = static_cast<std::size_t>(tensor.bytes);
        const auto stride = (bytes + alignment - 1) / alignment * alignment;
        out.arrays_.push_back({c, t, counts[c], bytes, stride});
      }
    }
    return out;
  }

  /// Sets the distance between slots for each array, in bytes. Shape: [arrays()]. Errors: another number of strides; a
  /// stride below a tensor's bytes; an array larger than the address space allows.
  validation set_strides(std::span<const std::size_t> strides) {
    if (strides.size() != arrays_.size())
      return refusal(strides.size(), " slot arrays, accepted: ", arrays_.size(),
                     ", one for each tensor of each size class");
    for (std::size_t a = 0; a < strides.size(); ++a) {
      const auto most =
          std::numeric_limits<std::size_t>::max() / 2 / std::max<std::size_t>(1, arrays_[a].slots);
      if (strides[a] < arrays_[a].bytes || strides[a] > most)
        return refusal("the stride of slot array ", a, " is ", strides[a],
                       " bytes, accepted: ", arrays_[a].bytes, " or more, the bytes of a tensor");
    }
    for (std::size_t a = 0; a < strides.size(); ++a) arrays_[a].stride = strides[a];
    return std::nullopt;
  }

  /// The reason why a cache of `layout` cannot use these slots, or nothing: their number, their size classes, or their
  /// bytes if the model's are known.
  [[nodiscard]] validation check(const pool_layout& layout) const {
    const auto held = slots_.size() - beside_;
    if (layout.slots() != held)
      return refusal("the bank has ", held, " slots, accepted: ", layout.slots(),
                     ", as in the cache");
    for (const auto s : each<slot_id>(held)) {
      const auto wanted = layout.at(layout.pool_of_slot(s)).size_class;
      if (slots_[s].size_class != index_of(wanted))
        return refusal("slot ", s, " of the bank has size class ", slots_[s].size_class,
                       ", accepted: ", wanted, ", as in the cache");
    }
    return check_bytes(layout);
  }

  /// Number of slots, including those beside the cache's, which are the last ones.
  [[nodiscard]] std::size_t slots() const noexcept { return slots_.size(); }
  [[nodiscard]] std::span<const array> arrays() const noexcept { return arrays_; }
  [[nodiscard]] std::size_t slots_of(std::size_t size_class) const noexcept {
    const auto found = std::ranges::find(arrays_, size_class, &array::size_class);
    return found == arrays_.end() ? 0 : found->slots;
  }
  /// Bytes of one slot of a size class.
  [[nodiscard]] std::uint64_t slot_bytes(std::size_t size_class) const noexcept {
    return sum(size_class, &array::stride);
  }
  /// Number of tensors of an expert in the slot. Pre: slot in range.
  [[nodiscard]] std::size_t tensors(slot_id slot) const noexcept {
    return classes_[slots_[slot].size_class].tensors;
  }
  /// Index of the slot in each array of its class: offset / stride. With one class it is the slot id. With more
  /// classes, a kernel that receives slots needs a table of these indices. Pre: slot in range.
  [[nodiscard]] std::size_t local(slot_id slot) const noexcept { return slots_[slot].local; }
  /// Pre: slot and tensor in range.
  [[nodiscard]] place at(slot_id slot, std::size_t tensor) const noexcept {
    const auto& s = slots_[slot];
    const auto index = classes_[s.size_class].first_array + tensor;
    return {index, s.local * arrays_[index].stride, arrays_[index].bytes};
  }

 private:
  [[nodiscard]] validation check_bytes(const pool_layout& layout) const {
    if (layout.shape().expert_bytes.empty()) return std::nullopt;
    for (std::size_t p = 0; p < layout.pools(); ++p) {
      const auto& pool = layout.at(static_cast<pool_id>(p));
      const auto held = sum(index_of(pool.size_class), &array::bytes);
      for (const auto l : pool.layers)
        if (const auto wanted = layout.shape().bytes_of(l, pool.precision); wanted != held)
          return refusal("slots of size class ", pool.size_class, " in the bank have ", held,
                         " bytes, accepted: ", wanted, ", the bytes of an expert of layer ", l);
    }
    return std::nullopt;
  }
  /// Sums a field over the arrays of a size class.
  [[nodiscard]] std::uint64_t sum(std::size_t size_class, std::size_t array::*of) const noexcept {
    std::uint64_t bytes = 0;
    for (const auto& one : arrays_)
      if (one.size_class == size_class) bytes += one.*of;
    return bytes;
  }

  struct slot_place {
    std::size_t size_class = 0;
    std::size_t local = 0;  ///< index among the slots of its class
  };
  struct class_arrays {
    std::size_t first_array = 0;
    std::size_t tensors = 0;
  };

  per_slot<slot_place> slots_;
  std::size_t beside_ = 0;
  std::vector<class_arrays> classes_;
  std::vector<array> arrays_;
};

/// Requirements on slot memory that can be freed and taken, on a host or a device.
///
/// | expression | meaning |
/// |---|---|
/// | `slots()` | number of slots, with or without memory |
/// | `tensors(slot)`, `bytes(slot, tensor)` | an expert's tensors in a slot; addresses are fixed for the bank's life |
/// | `slot_bytes(size_class)` | bytes that a slot takes from the budget |
/// | `held(size_class)` | number of slots of the class with memory: its first ones |
/// | `hold(size_class, slots)` | gives memory to exactly the first `slots` slots of the class; see below |
/// | `copy_slot(from, to, stream)` | copies all tensors after the work enqueued on the stream; see below |
/// | `finish(stream)` | waits until the work enqueued on the stream has run. `fill_failed`: it has not |
///
/// `hold` keeps contents; those of new slots are unspecified. `exceeds_memory`: nothing has changed.
/// After `copy_slot` the bytes at `to` are valid when `finish` returns. Pre: both slots are held and of one size
/// class.
/// Calls are `noexcept`. Call `hold`, `copy_slot` and `finish` at drained points.
// clang-format 14 splits compound requirements badly.
// clang-format off
template <class B, class Stream>
concept slot_bank = requires(B bank, const B& fixed, slot_id slot, std::size_t n, Stream& stream) {
  { fixed.slots() } noexcept -> std::same_as<std::size_t>;
  { fixed.tensors(slot) } noexcept -> std::same_as<std::size_t>;
  { fixed.bytes(slot, n) } noexcept -> std::same_as<std::span<std::byte>>;
  { fixed.slot_bytes(n) } noexcept -> std::same_as<std::uint64_t>;
  { fixed.held(n) } noexcept -> std::same_as<std::size_t>;
  { bank.hold(n, n) } noexcept -> std::same_as<status>;
  { bank.copy_slot(slot, slot, stream) } noexcept -> std::same_as<status>;
  { bank.finish(stream) } noexcept -> std::same_as<status>;
};
// clang-format on

}  // namespace hotset
