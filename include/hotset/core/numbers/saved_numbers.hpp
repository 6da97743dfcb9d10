// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Numbers of saved files, in an order of bytes that every machine reads alike: the lowest byte first.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/version.hpp"

namespace hotset {

/// Appends 4 bytes, the lowest first.
inline void save_number(std::uint32_t n, std::vector<std::byte>& out) {
  for (unsigned shift = 0; shift < 32; shift += 8)
    out.push_back(static_cast<std::byte>((n >> shift) & 0xffU));
}
/// Pre: at + 4 <= bytes.size().
[[nodiscard]] inline std::uint32_t saved_number(std::span<const std::byte> bytes,
                                                std::size_t at) noexcept {
  std::uint32_t n = 0;
  for (unsigned i = 0; i < 4; ++i) n |= static_cast<std::uint32_t>(bytes[at + i]) << (8 * i);
  return n;
}

}  // namespace hotset
