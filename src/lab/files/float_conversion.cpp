// SPDX-License-Identifier: Apache-2.0
#include "lab/files/float_conversion.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "hotset/trace/half_array.hpp"
#include "lab/files/safetensors.hpp"

namespace hotset::lab {
namespace {

constexpr std::array<std::string_view, 3> type_names{"F16", "BF16", "F32"};  // by float_type

float widened(std::uint32_t bits, float_type type) noexcept {
  if (type == float_type::f16) return half_to_float(static_cast<std::uint16_t>(bits));
  return std::bit_cast<float>(type == float_type::bf16 ? bits << 16U : bits);
}

std::uint32_t narrowed(float value, float_type type) noexcept {
  if (type == float_type::f16) return float_to_half(value);
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (type == float_type::f32) return bits;
  if (std::isnan(value))
    return (bits >> 16U) | 0x40U;  // the lower half may hold the NaN's only set bits
  return (bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U;
}

}  // namespace

std::optional<float_type> parse_float_type(std::string_view dtype) noexcept {
  const auto* const at = std::ranges::find(type_names, dtype);
  if (at == type_names.end()) return std::nullopt;
  return static_cast<float_type>(at - type_names.begin());
}

std::size_t element_bytes(float_type type) noexcept { return type == float_type::f32 ? 4 : 2; }

bool convert_floats(float_type type, std::span<const std::byte> from, float_type to_type,
                    std::span<std::byte> to) noexcept {
  if (type == to_type) {
    std::ranges::copy(from, to.begin());
    return true;
  }
  bool fits = true;
  for (std::size_t i = 0; i < from.size() / element_bytes(type); ++i) {
    const auto bits = type == float_type::f32 ? read_unaligned<std::uint32_t>(from, i)
                                              : read_unaligned<std::uint16_t>(from, i);
    const auto value = widened(bits, type);
    const auto made = narrowed(value, to_type);
    fits = fits && (std::isinf(value) || !std::isinf(widened(made, to_type)));
    // Constant sizes let the compiler inline memcpy. The machine and the files are little-endian.
    if (to_type == float_type::f32)
      std::memcpy(to.data() + 4 * i, &made, 4);
    else
      std::memcpy(to.data() + 2 * i, &made, 2);
  }
  return fits;
}

}  // namespace hotset::lab
