// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Converts arrays of F16, BF16 and F32 elements at any alignment, as files store them.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace hotset::lab {

enum class float_type : std::uint8_t { f16, bf16, f32 };

/// Parses a safetensors dtype; nothing for another dtype.
[[nodiscard]] std::optional<float_type> parse_float_type(std::string_view dtype) noexcept;
[[nodiscard]] std::size_t element_bytes(float_type type) noexcept;

/// Rounds to nearest, ties to even; a NaN stays a NaN, and equal types keep every bit.
/// Returns false if a finite value became infinite. Pre: both spans hold the same number of elements and do not
/// overlap.
bool convert_floats(float_type type, std::span<const std::byte> from, float_type to_type,
                    std::span<std::byte> to) noexcept;

}  // namespace hotset::lab
