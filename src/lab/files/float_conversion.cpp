// SPDX-License-Identifier: Apache-2.0
#include "lab/files/float_conversion.hpp"

#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#include "hotset/trace/half_array.hpp"
#include "lab/files/safetensors.hpp"

namespace hotset::lab {
namespace {

constexpr std::uint32_t float_infinity = 0x7f800000U;

constexpr std::uint32_t magnitude_of(std::uint32_t bits) noexcept { return bits & 0x7fffffffU; }

// What each type's elements are as the bits of a float, and back.

struct f16 {
  using stored = std::uint16_t;
  static constexpr std::uint32_t magnitude = 0x7fffU;
  static constexpr std::uint32_t infinity = 0x7c00U;
  static constexpr std::uint32_t widened(stored half) noexcept {
    return std::bit_cast<std::uint32_t>(half_to_float(half));
  }
  static constexpr stored narrowed(std::uint32_t bits) noexcept {
    return float_to_half(std::bit_cast<float>(bits));
  }
};

struct bf16 {
  using stored = std::uint16_t;
  static constexpr std::uint32_t magnitude = 0x7fffU;
  static constexpr std::uint32_t infinity = 0x7f80U;
  static constexpr std::uint32_t widened(stored value) noexcept {
    return static_cast<std::uint32_t>(value) << 16U;
  }
  /// What a NaN has in its lower half could be all that makes it one.
  static constexpr stored narrowed(std::uint32_t bits) noexcept {
    const auto rounded = (bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U;
    const auto nan = (bits >> 16U) | 0x40U;
    return static_cast<stored>(magnitude_of(bits) > float_infinity ? nan : rounded);
  }
};

struct f32 {
  using stored = std::uint32_t;
  static constexpr std::uint32_t magnitude = 0x7fffffffU;
  static constexpr std::uint32_t infinity = float_infinity;
  static constexpr std::uint32_t widened(stored bits) noexcept { return bits; }
  static constexpr stored narrowed(std::uint32_t bits) noexcept { return bits; }
};

template <class From, class To>
bool convert(std::span<const std::byte> from, std::span<std::byte> to) noexcept {
  using stored = typename To::stored;
  if constexpr (std::is_same_v<From, To>) {
    if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
    return true;
  } else {
    const auto count = from.size() / sizeof(typename From::stored);
    std::uint32_t lost = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const auto bits = From::widened(read_unaligned<typename From::stored>(from, i));
      const stored value = To::narrowed(bits);
      const bool was_infinite = magnitude_of(bits) == float_infinity;
      const bool is_infinite = (value & To::magnitude) == To::infinity;
      lost |= is_infinite && !was_infinite ? 1U : 0U;
      std::memcpy(to.data() + i * sizeof(stored), &value, sizeof(stored));
    }
    return lost == 0;
  }
}

template <class From>
constexpr std::array<float_converter, 3> from_type{convert<From, f16>, convert<From, bf16>,
                                                   convert<From, f32>};

}  // namespace

std::optional<float_type> parse_float_type(std::string_view dtype) noexcept {
  if (dtype == "F16") return float_type::f16;
  if (dtype == "BF16") return float_type::bf16;
  if (dtype == "F32") return float_type::f32;
  return std::nullopt;
}

std::size_t element_bytes(float_type type) noexcept { return type == float_type::f32 ? 4 : 2; }

// NOLINTNEXTLINE(bugprone-easily-swappable-parameters): from, then to
float_converter converter(float_type from, float_type to) noexcept {
  const auto at = static_cast<std::size_t>(to);
  switch (from) {
    case float_type::f16: return from_type<f16>[at];
    case float_type::bf16: return from_type<bf16>[at];
    default: return from_type<f32>[at];
  }
}

}  // namespace hotset::lab
