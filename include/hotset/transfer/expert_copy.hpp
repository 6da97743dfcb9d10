// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Copies an expert, or a part of it, from where it lies into a host slot: what all host backends do.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "hotset/concepts/expert_reader.hpp"
#include "hotset/concepts/expert_source.hpp"
#include "hotset/core/fill.hpp"
#include "hotset/memory/host_slot_bank.hpp"

namespace hotset::inline v0 {

/// The tensors of an expert as one row of bytes. Threads: as the origin and the bank.
template <expert_origin Origin>
class expert_copy {
 public:
  /// Both outlive it.
  expert_copy(const Origin& origin, const host_slot_bank& bank) : origin_(origin), bank_(bank) {}

  /// Units: bytes. 0: the expert is not there, or its tensors are not those of the slot.
  [[nodiscard]] std::uint64_t bytes(const fill& f) const noexcept {
    std::uint64_t total = 0;
    std::size_t count = 0;
    bool fits = true;
    each_size(f, [&](std::uint64_t size) {
      fits = fits && count < bank_.tensors(f.slot) && size == bank_.bytes(f.slot, count).size();
      total += size;
      ++count;
    });
    return fits && count == bank_.tensors(f.slot) ? total : 0;
  }
  /// Returns false if not all of [from, from + count) could be read; then any of it may have been written.
  /// Pre: from + count <= bytes(f).
  [[nodiscard]] bool copy(const fill& f, std::uint64_t from, std::uint64_t count) const noexcept {
    std::uint64_t tensor_begin = 0;
    for (std::size_t t = 0; t < bank_.tensors(f.slot); ++t) {
      const auto to = bank_.bytes(f.slot, t);
      const auto begin = std::max(tensor_begin, from);
      const auto end = std::min(tensor_begin + to.size(), from + count);
      if (begin < end) {
        const auto at = static_cast<std::size_t>(begin - tensor_begin);
        if (!read(f, t, at, to.subspan(at, static_cast<std::size_t>(end - begin)))) return false;
      }
      tensor_begin += to.size();
    }
    return true;
  }

 private:
  template <class Use>
  void each_size(const fill& f, Use use) const noexcept {
    if constexpr (expert_source<Origin>) {
      for (const auto& tensor : origin_.tensors(f.key, f.precision)) use(tensor.size());
    } else {
      for (const auto size : origin_.sizes(f.key, f.precision)) use(size);
    }
  }
  /// The origin is asked again for every part: what it has may have changed.
  bool read(const fill& f, std::size_t t, std::size_t at, std::span<std::byte> to) const noexcept {
    if constexpr (expert_source<Origin>) {
      const auto tensors = origin_.tensors(f.key, f.precision);
      if (t >= tensors.size() || tensors[t].size() < at + to.size()) return false;
      std::memcpy(to.data(), tensors[t].data() + at, to.size());
      return true;
    } else {
      return origin_.read(f.key, f.precision, t, at, to);
    }
  }

  const Origin& origin_;
  const host_slot_bank& bank_;
};

}  // namespace hotset::inline v0
