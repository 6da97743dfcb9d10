// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Copies an expert, or a part of it, from its source into a host slot; shared by all host backends.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "hotset/core/fill.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/transfer/expert_source.hpp"
#include "hotset/transfer/memory/host_slot_bank.hpp"

namespace hotset {

/// Copies the tensors of an expert as one sequence of bytes. Threads: as the origin and the bank.
template <expert_origin Origin>
class expert_copy {
 public:
  /// Pre: both outlive the object.
  expert_copy(const Origin& origin, const host_slot_bank& bank) : origin_(origin), bank_(bank) {}

  /// The bytes that one call has copied. Units: bytes.
  struct part {
    std::uint64_t bytes = 0;  ///< 0: nothing was copied, and the copy cannot succeed
    std::uint64_t total = 0;  ///< bytes of the whole expert
  };
  /// Copies at most `most` bytes from byte `from` on; 0: all. If the origin has `read_all`, copies all in one call.
  /// Reads the origin's tensors once, because they may change between two calls.
  /// Returns 0 bytes if the expert is absent, if its tensors differ from those of the slot, or if a read failed. After
  /// a failed read some bytes may be written. Pre: `from` is below the expert's bytes.
  [[nodiscard]] part copy(const fill& f, std::uint64_t from, std::uint64_t most) const noexcept {
    if constexpr (expert_source<Origin>) {
      const auto tensors = origin_.tensors(f.key, f.precision);
      return copy_tensors(
          f, from, most, tensors.size(), [&](std::size_t t) { return tensors[t].size(); },
          [&](std::span<const tensor_part> parts) {
            for (const auto& [tensor, at, to] : parts)
              std::memcpy(to.data(), tensors[tensor].data() + at, to.size());
            return true;
          });
    } else {
      const auto sizes = origin_.sizes(f.key, f.precision);
      return copy_tensors(
          f, from, detail::has_read_all<Origin> ? 0 : most, sizes.size(),
          [&](std::size_t t) { return sizes[t]; },
          [&](std::span<const tensor_part> parts) {
            return detail::read_parts(origin_, f.key, f.precision, parts);
          });
    }
  }
  /// Drops the origin's cached bytes of the key or the layer.
  template <class KeyOrLayer>
  void invalidate(KeyOrLayer what) const noexcept {
    detail::invalidate_in(origin_, what);
  }

 private:
  template <class SizeOf, class Read>
  part copy_tensors(const fill& f, std::uint64_t from, std::uint64_t most, std::size_t count,
                    SizeOf size_of, Read read) const noexcept {
    if (count == 0 || count != bank_.tensors(f.slot)) return {};
    std::uint64_t total = 0;
    for (std::size_t t = 0; t < count; ++t) {
      if (size_of(t) != bank_.bytes(f.slot, t).size()) return {};
      total += size_of(t);
    }
    const auto bytes = most == 0 ? total - from : std::min(total - from, most);
    std::array<tensor_part, expert_layout::max_tensors> parts;
    std::size_t used = 0;
    std::uint64_t tensor_begin = 0;
    for (std::size_t t = 0; t < count; ++t) {
      const auto to = bank_.bytes(f.slot, t);
      const auto begin = std::max(tensor_begin, from);
      const auto end = std::min(tensor_begin + to.size(), from + bytes);
      if (begin < end) {
        const auto at = static_cast<std::size_t>(begin - tensor_begin);
        parts[used++] = {t, at, to.subspan(at, static_cast<std::size_t>(end - begin))};
      }
      tensor_begin += to.size();
    }
    if (!read(std::span<const tensor_part>(parts).first(used))) return {};
    return {bytes, total};
  }

  const Origin& origin_;
  const host_slot_bank& bank_;
};

}  // namespace hotset
