// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Matrices at 8, 4 or 2 bits per weight: one scale per group of 32, packed into one blob of bytes.

#include <cstddef>
#include <cstdint>
#include <span>

namespace tiny_moe {

// Layout of a packed matrix of rows x columns weights, in bytes:
//   scales   [rows][groups of a row] halves in this machine's byte order; a group is 32 weights of a row, the last of
//   a row may be shorter
//   zeros    up to a multiple of 8
//   codes    [rows][groups of a row], n * bits / 8 bytes for a group of n weights. Byte j holds, from its low bits
//   up, the codes of the weights j, j + n * bits / 8, j + 2 * n * bits / 8, ...
//   zeros    up to a multiple of 8
// A weight is (code - 2^(bits - 1)) * scale: levels -128..127, -8..7 or -2..1 times a scale of either sign. The
// product of a half and such a small integer is exact in float, so every machine reads the same bits.
// At 2 bits, the levels -1.5, -0.5, 0.5, 1.5 lose as little squared error, but held-out text costs the example model
// more with them.
// At 16 bits nothing is packed: the blob is the halves.

/// Weights of a group.
inline constexpr std::size_t group_weights = 32;

/// Whether a weight can be stored in this many bits: 16, 8, 4 or 2.
[[nodiscard]] constexpr bool is_weight_width(int bits) noexcept {
  return bits == 16 || bits == 8 || bits == 4 || bits == 2;
}

/// Bytes of the packed matrix, a multiple of 8 below 16 bits. Pre: is_weight_width(bits); `columns` is a multiple of
/// 8.
[[nodiscard]] std::size_t quantised_bytes(std::size_t rows, std::size_t columns, int bits) noexcept;

/// Packs a matrix. Each group takes, from a fixed list of scales, the one with the least squared error, ties to the
/// first; weights are rounded to the nearest level, ties to the even one.
/// Shape: halves [rows, columns], out [quantised_bytes(...)]. Pre: those of quantised_bytes; every half is finite.
void quantise(std::span<const std::uint16_t> halves, std::size_t rows, std::size_t columns,
              int bits, std::span<std::byte> out) noexcept;

/// Unpacks a matrix to floats. Shape: packed [quantised_bytes(...)], out [rows, columns]. Pre: those of
/// quantised_bytes; at 16 bits the blob is aligned to 2.
void dequantise(std::span<const std::byte> packed, std::size_t rows, std::size_t columns, int bits,
                float* out) noexcept;

/// Unpacks `count` rows, from `first` on, of a packed matrix of `rows` rows. Shape: out [count, columns]. Pre: those
/// of dequantise.
void dequantise_rows(const std::byte* packed, std::size_t rows, std::size_t columns, int bits,
                     std::size_t first, std::size_t count, float* out) noexcept;

}  // namespace tiny_moe
