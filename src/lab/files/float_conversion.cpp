// SPDX-License-Identifier: Apache-2.0
#include "lab/files/float_conversion.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <type_traits>

#include "hotset/trace/half_array.hpp"
#include "lab/files/safetensors.hpp"

namespace hotset::lab {
namespace {

constexpr std::array<std::string_view, 3> names{"F16", "BF16", "F32"};  // by float_type

template <float_type Type>
using stored = std::conditional_t<Type == float_type::f32, std::uint32_t, std::uint16_t>;

template <float_type Type>
float widened(stored<Type> bits) noexcept {
  if constexpr (Type == float_type::f16) return half_to_float(bits);
  if constexpr (Type == float_type::bf16) return std::bit_cast<float>(std::uint32_t{bits} << 16U);
  if constexpr (Type == float_type::f32) return std::bit_cast<float>(bits);
}

template <float_type Type>
stored<Type> narrowed(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if constexpr (Type == float_type::f16) return float_to_half(value);
  if constexpr (Type == float_type::f32) return bits;
  if constexpr (Type == float_type::bf16) {
    const auto rounded = (bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U;
    const auto nan = (bits >> 16U) | 0x40U;  // its lower half could be all that makes it one
    return static_cast<stored<Type>>(std::isnan(value) ? nan : rounded);
  }
}

template <float_type From, float_type To>
bool convert(std::span<const std::byte> from, std::span<std::byte> to) noexcept {
  if constexpr (From == To) {
    std::ranges::copy(from, to.begin());
    return true;
  }
  bool fits = true;
  for (std::size_t i = 0; i < from.size() / sizeof(stored<From>); ++i) {
    const auto value = widened<From>(read_unaligned<stored<From>>(from, i));
    const auto made = narrowed<To>(value);
    fits = fits && (std::isinf(value) || !std::isinf(widened<To>(made)));
    std::memcpy(to.data() + i * sizeof(made), &made, sizeof(made));
  }
  return fits;
}

template <float_type From>
constexpr std::array<float_converter, 3> from_type{convert<From, float_type::f16>,
                                                   convert<From, float_type::bf16>,
                                                   convert<From, float_type::f32>};

}  // namespace

std::optional<float_type> parse_float_type(std::string_view dtype) noexcept {
  const auto* const at = std::ranges::find(names, dtype);
  if (at == names.end()) return std::nullopt;
  return static_cast<float_type>(at - names.begin());
}

std::size_t element_bytes(float_type type) noexcept { return type == float_type::f32 ? 4 : 2; }

// NOLINTNEXTLINE(bugprone-easily-swappable-parameters): from, then to
float_converter converter(float_type from, float_type to) noexcept {
  constexpr std::array converters{from_type<float_type::f16>, from_type<float_type::bf16>,
                                  from_type<float_type::f32>};
  return converters[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
}

}  // namespace hotset::lab
