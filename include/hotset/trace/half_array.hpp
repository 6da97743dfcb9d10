// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Half-precision numbers (IEEE binary16) as stored in a file, with conversions to and from float.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "hotset/core/platform/assert.hpp"

namespace hotset {

/// Exact for every half, infinities and NaN included.
[[nodiscard]] constexpr float half_to_float(std::uint16_t half) noexcept {
  const std::uint32_t sign = (half & 0x8000U) << 16U;
  const std::uint32_t magnitude = half & 0x7fffU;
  if (magnitude >= 0x7c00U) return std::bit_cast<float>(sign | 0x7f800000U | (magnitude << 13U));
  if (magnitude >= 0x0400U) return std::bit_cast<float>(sign | ((magnitude << 13U) + 0x38000000U));
  const float subnormal = static_cast<float>(magnitude) * 0x1p-24F;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(subnormal));
}

/// Rounds to nearest, ties to even. Values that round to more than 65504 become infinity; NaN stays NaN.
[[nodiscard]] constexpr std::uint16_t float_to_half(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16U) & 0x8000U;
  std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return static_cast<std::uint16_t>(sign | 0x7e00U);
  if (magnitude >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);
  if (magnitude < 0x33000000U) return static_cast<std::uint16_t>(sign);  // below half of 2^-24
  if (magnitude < 0x38800000U) {  // a subnormal half: shift the significand into place by hand
    const std::uint32_t shift = 126U - (magnitude >> 23U);
    const std::uint32_t significand = (magnitude & 0x7fffffU) | 0x800000U;
    const std::uint32_t kept = significand >> shift;
    const std::uint32_t rest = significand & ((1U << shift) - 1U);
    const std::uint32_t halfway = 1U << (shift - 1U);
    const bool up = rest > halfway || (rest == halfway && (kept & 1U) != 0);
    return static_cast<std::uint16_t>(sign | (kept + (up ? 1U : 0U)));
  }
  magnitude += 0xfffU + ((magnitude >> 13U) & 1U);
  return static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000U) >> 13U));
}

/// A read-only array of halves that may lie in a mapped file, at any alignment.
///
/// Copies share the bytes. Threads: const use is safe.
class half_array {
 public:
  half_array() = default;
  /// Takes ownership of the values.
  explicit half_array(std::vector<std::uint16_t> values) {
    auto kept = std::make_shared<const std::vector<std::uint16_t>>(std::move(values));
    bytes_ = std::as_bytes(std::span(*kept));
    owner_ = std::move(kept);
  }
  /// Views little-endian halves that owner keeps alive. Pre: bytes.size() is even.
  half_array(std::shared_ptr<const void> owner, std::span<const std::byte> bytes)
      : owner_(std::move(owner)), bytes_(bytes) {
    HOTSET_ASSERT(bytes.size() % 2 == 0);
  }

  [[nodiscard]] std::size_t size() const noexcept { return bytes_.size() / 2; }
  [[nodiscard]] bool empty() const noexcept { return bytes_.empty(); }
  /// Returns the stored bits. Pre: i < size().
  [[nodiscard]] std::uint16_t raw(std::size_t i) const noexcept {
    HOTSET_ASSERT(i < size());
    std::uint16_t half = 0;
    std::memcpy(&half, bytes_.data() + 2 * i, 2);
    return half;
  }
  /// Pre: i < size().
  [[nodiscard]] float operator[](std::size_t i) const noexcept { return half_to_float(raw(i)); }
  /// Converts [first, first + out.size()). Pre: the range lies within the array.
  void convert(std::size_t first, std::span<float> out) const noexcept {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = (*this)[first + i];
  }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  std::shared_ptr<const void> owner_;
  std::span<const std::byte> bytes_;
};

}  // namespace hotset
