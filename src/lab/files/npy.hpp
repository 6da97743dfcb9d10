// SPDX-License-Identifier: Apache-2.0
#pragma once
/// NumPy's .npy format, versions 1 to 3: one array of numbers and its shape.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/version.hpp"

namespace hotset::lab {

/// An array as it lies in the file. `bytes` views what was parsed.
struct npy_array {
  std::string name;                 ///< of the file; in an archive, without its ending
  char kind = 'i';                  ///< 'i' and 'u': integers, 'f': of IEEE 754, 'b': 0 or 1
  std::size_t item = 0;             ///< bytes of a number: 1, 2, 4, 8
  bool first_axis_fastest = false;  ///< Fortran's order
  std::vector<std::size_t> shape;
  std::string_view bytes;

  /// Numbers in it.
  [[nodiscard]] std::size_t size() const noexcept { return item == 0 ? 0 : bytes.size() / item; }
  [[nodiscard]] bool is_integer() const noexcept { return kind != 'f'; }
  /// "uint8 of shape [3, 4, 2]".
  [[nodiscard]] std::string description() const;
};

/// Whether a file that begins like this is an array of NumPy's.
[[nodiscard]] bool looks_like_npy(std::string_view beginning) noexcept;

/// file is for messages and for the name. Errors: trace_error: damage, bytes that are missing or too many, arrays of anything
/// but whole or real numbers of 1 to 8 bytes, the lowest first.
[[nodiscard]] npy_array parse_npy(std::string_view bytes, const std::string& file);

/// The numbers in row-major order. Values of uint64 above 2^63 - 1 become -1. Pre: is_integer().
[[nodiscard]] std::vector<std::int64_t> integers_of(const npy_array& array);
/// The numbers in row-major order, rounded.
[[nodiscard]] std::vector<float> floats_of(const npy_array& array);

}  // namespace hotset::lab
