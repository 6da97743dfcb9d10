// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Storage formats of experts, decoded exactly to float on the host and on the device.

#include <cstdint>

#include "hotset/core/platform/compiler.hpp"

namespace cuda_decode {

/// Format of one weight. e4m3 has a float scale for each square block, e2m1 an e8m0 scale for each 32 weights of a
/// row (mxfp4).
enum class number_format : std::uint8_t { bf16, f16, e4m3, e2m1 };

[[nodiscard]] HOTSET_HOST_DEVICE inline float float_of(std::uint32_t bits) noexcept {
  return __builtin_bit_cast(float, bits);
}
[[nodiscard]] HOTSET_HOST_DEVICE inline float from_bf16(std::uint32_t bits) noexcept {
  return float_of(bits << 16U);
}
[[nodiscard]] HOTSET_HOST_DEVICE inline float from_f16(std::uint32_t bits) noexcept {
  const std::uint32_t sign = (bits & 0x8000U) << 16U;
  const std::uint32_t shifted = (bits & 0x7fffU) << 13U;
  const std::uint32_t exponent = shifted & 0x0f800000U;
  if (exponent == 0x0f800000U) return float_of(sign | (shifted + 0x70000000U));
  if (exponent != 0) return float_of(sign | (shifted + 0x38000000U));
  // A subnormal: 2^-14 + mantissa * 2^-24, minus 2^-14. Both steps are exact.
  const float magnitude = float_of(shifted + 0x38800000U) - float_of(0x38800000U);
  return float_of(sign | __builtin_bit_cast(std::uint32_t, magnitude));
}
/// Bias 7; 0x7f and 0xff are NaN; no infinities.
[[nodiscard]] HOTSET_HOST_DEVICE inline float from_e4m3(std::uint32_t bits) noexcept {
  const std::uint32_t sign = (bits & 0x80U) << 24U;
  const std::uint32_t exponent = (bits >> 3U) & 0xfU;
  const std::uint32_t mantissa = bits & 0x7U;
  if (exponent == 0xf && mantissa == 0x7) return float_of(sign | 0x7fc00000U);
  if (exponent != 0) return float_of(sign | ((exponent + 120) << 23U) | (mantissa << 20U));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-9F;
  return float_of(sign | __builtin_bit_cast(std::uint32_t, magnitude));
}
/// 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives.
[[nodiscard]] HOTSET_HOST_DEVICE inline float from_e2m1(std::uint32_t bits) noexcept {
  const std::uint32_t sign = (bits & 0x8U) << 28U;
  const std::uint32_t exponent = (bits >> 1U) & 0x3U;
  const std::uint32_t mantissa = bits & 0x1U;
  if (exponent != 0) return float_of(sign | ((exponent + 126) << 23U) | (mantissa << 22U));
  return float_of(sign | (mantissa != 0 ? 0x3f000000U : 0U));
}
/// 2^(bits - 127); 0xff is NaN.
[[nodiscard]] HOTSET_HOST_DEVICE inline float from_e8m0(std::uint32_t bits) noexcept {
  if (bits == 0) return 0x1p-127F;
  return float_of(bits == 0xffU ? 0x7fc00000U : bits << 23U);
}

}  // namespace cuda_decode
