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

/// An array as stored in the file. `bytes` views the parsed input.
struct npy_array {
  /// Name of the file, or inside an archive its name without extension.
  std::string name;
  char kind = 'i';                  ///< 'i' and 'u': integers, 'f': IEEE 754, 'b': 0 or 1
  std::size_t item = 0;             ///< bytes of a number: 1, 2, 4, 8
  bool first_axis_fastest = false;  ///< Fortran order
  std::vector<std::size_t> shape;
  std::string_view bytes;

  /// Number of values.
  [[nodiscard]] std::size_t size() const noexcept { return item == 0 ? 0 : bytes.size() / item; }
  [[nodiscard]] bool is_integer() const noexcept { return kind != 'f'; }
  /// Formats as "uint8 of shape [3, 4, 2]".
  [[nodiscard]] std::string description() const;
};

/// Whether a file with these first bytes is a NumPy array.
[[nodiscard]] bool looks_like_npy(std::string_view beginning) noexcept;

/// `file` is for messages and for the name. Errors: trace_error: damage, missing or extra bytes, element types other
/// than booleans, and little-endian integers and floats of 1 to 8 bytes.
[[nodiscard]] npy_array parse_npy(std::string_view bytes, const std::string& file);

/// Values in row-major order. uint64 values above 2^63 - 1 become -1. Pre: is_integer().
[[nodiscard]] std::vector<std::int64_t> integers_of(const npy_array& array);
/// Values in row-major order, rounded to float.
[[nodiscard]] std::vector<float> floats_of(const npy_array& array);

}  // namespace hotset::lab
