// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/model/quantised.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "hotset/trace/half_array.hpp"
#include "tiny_moe/model/kernels.hpp"

namespace tiny_moe {
namespace {

constexpr std::size_t round_up_to_8(std::size_t bytes) noexcept { return (bytes + 7) / 8 * 8; }

constexpr std::size_t groups_of(std::size_t columns) noexcept {
  return (columns + group_weights - 1) / group_weights;
}

std::size_t bytes_of_scales(std::size_t rows, std::size_t columns) noexcept {
  return round_up_to_8(rows * groups_of(columns) * sizeof(std::uint16_t));
}

constexpr std::size_t bytes_of_codes(std::size_t weights, int bits) noexcept {
  return weights * static_cast<std::size_t>(bits) / 8;
}

// Rounds to the nearest integer, ties to even, independent of the machine's mode. Pre: |x| < 2^51.
double nearest(double x) noexcept {
  constexpr double big = 0x1.8p52;
  return (x + big) - big;
}

// Integers that can be coded with these bits.
struct levels {
  explicit levels(int bits) noexcept : lowest(-std::ldexp(1.0, bits - 1)), highest(-lowest - 1.0) {}
  [[nodiscard]] double of(float weight, float scale) const noexcept {
    return std::clamp(nearest(static_cast<double>(weight) / static_cast<double>(scale)), lowest,
                      highest);
  }
  double lowest;
  double highest;
};

// Scales that a group tries: `ratios` times the scale that maps its largest weight to the highest level, with either
// sign, because there is one more level below zero than above. With fewer bits, clipping gains more. Even smaller
// scales would reduce a 2-bit group's squared error, but lose its largest weights, and text then costs more.
constexpr int ratios = 21;
double lowest_ratio(int bits) noexcept {
  if (bits == 8) return 0.9;
  return bits == 4 ? 0.7 : 0.5;
}

// Squared error of rounding, or any number of at least `limit`.
double squared_error(std::span<const float> group, float scale, const levels& grid,
                     double limit) noexcept {
  double sum = 0.0;
  for (const float weight : group) {
    const double difference =
        static_cast<double>(weight) - grid.of(weight, scale) * static_cast<double>(scale);
    sum += difference * difference;
    if (sum >= limit) break;
  }
  return sum;
}

// Order of the candidates: largest ratio first, positive before negative.
std::uint16_t best_scale(std::span<const float> group, int bits) noexcept {
  double largest = 0.0;
  for (const float weight : group) {
    largest = std::max(largest, std::abs(static_cast<double>(weight)));
  }
  if (largest == 0.0) return 0;
  const levels grid(bits);
  const double step = (1.0 - lowest_ratio(bits)) / (ratios - 1);
  double least = std::numeric_limits<double>::infinity();
  std::uint16_t best = 0;
  for (int i = 0; i < ratios; ++i) {
    const double wanted = largest / grid.highest * (1.0 - step * i);
    // A scale must not round to zero: use at least the smallest half.
    const std::uint16_t positive =
        std::max(hotset::float_to_half(static_cast<float>(wanted)), std::uint16_t{1});
    for (const unsigned sign : {0x0000U, 0x8000U}) {
      const auto scale = static_cast<std::uint16_t>(positive | sign);
      const double error = squared_error(group, hotset::half_to_float(scale), grid, least);
      if (error < least) {
        least = error;
        best = scale;
      }
    }
  }
  return best;
}

// Pre: `out` is zero.
void pack_group(std::span<const float> group, float scale, int bits, std::byte* out) noexcept {
  const levels grid(bits);
  const std::size_t bytes = bytes_of_codes(group.size(), bits);
  for (std::size_t i = 0; i < group.size(); ++i) {
    const double level = scale == 0.0F ? 0.0 : grid.of(group[i], scale);
    const auto code = static_cast<unsigned>(level - grid.lowest);
    out[i % bytes] |= static_cast<std::byte>(code << i / bytes * static_cast<unsigned>(bits));
  }
}

// Decodes one group of `bytes` bytes of codes.
template <int Bits>
void unpack_group(const std::byte* codes, float scale, std::size_t bytes, float* out) noexcept {
  constexpr int mask = (1 << Bits) - 1;
  constexpr int zero = 1 << (Bits - 1);
  for (int shift = 0; shift < 8; shift += Bits) {
    for (std::size_t j = 0; j < bytes; ++j) {
      const int code = (std::to_integer<int>(codes[j]) >> shift) & mask;
      out[j] = static_cast<float>(code - zero) * scale;
    }
    out += bytes;
  }
}

// Decodes a full group: from a copy that cannot alias `out`, with constant sizes, so that the compiler uses vectors.
template <int Bits>
void unpack_full_group(const std::byte* codes, float scale, float* out) noexcept {
  std::byte copy[bytes_of_codes(group_weights, Bits)];
  std::memcpy(copy, codes, sizeof copy);
  unpack_group<Bits>(copy, scale, sizeof copy, out);
}

template <int Bits>
void unpack_rows(const std::byte* packed, std::size_t rows, std::size_t columns, std::size_t first,
                 std::size_t count, float* out) noexcept {
  constexpr std::size_t bytes_of_group = bytes_of_codes(group_weights, Bits);
  const std::size_t groups = groups_of(columns);
  const std::byte* scales = packed + first * groups * sizeof(std::uint16_t);
  const std::byte* codes =
      packed + bytes_of_scales(rows, columns) + first * bytes_of_codes(columns, Bits);
  for (std::size_t r = 0; r < count; ++r) {
    for (std::size_t c = 0; c < columns; c += group_weights) {
      std::uint16_t half = 0;
      std::memcpy(&half, scales, sizeof half);
      scales += sizeof half;
      const float scale = hotset::half_to_float(half);
      if (columns - c >= group_weights) {
        unpack_full_group<Bits>(codes, scale, out);
        codes += bytes_of_group;
        out += group_weights;
      } else {
        const std::size_t bytes = bytes_of_codes(columns - c, Bits);
        unpack_group<Bits>(codes, scale, bytes, out);
        codes += bytes;
        out += columns - c;
      }
    }
  }
}

}  // namespace

std::size_t quantised_bytes(std::size_t rows, std::size_t columns, int bits) noexcept {
  const std::size_t codes = bytes_of_codes(rows * columns, bits);
  return bits == 16 ? codes : bytes_of_scales(rows, columns) + round_up_to_8(codes);
}

void quantise(std::span<const std::uint16_t> halves, std::size_t rows, std::size_t columns,
              int bits, std::span<std::byte> out) noexcept {
  if (bits == 16) {
    std::memcpy(out.data(), halves.data(), halves.size_bytes());
    return;
  }
  std::fill(out.begin(), out.end(), std::byte{0});
  std::byte* scales = out.data();
  std::byte* codes = out.data() + bytes_of_scales(rows, columns);
  float weights[group_weights];
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < columns; c += group_weights) {
      const std::size_t size = std::min(group_weights, columns - c);
      half_to_float(halves.subspan(r * columns + c, size), weights);
      const std::uint16_t scale = best_scale({weights, size}, bits);
      std::memcpy(scales, &scale, sizeof scale);
      pack_group({weights, size}, hotset::half_to_float(scale), bits, codes);
      scales += sizeof scale;
      codes += bytes_of_codes(size, bits);
    }
  }
}

void dequantise_rows(const std::byte* packed, std::size_t rows, std::size_t columns, int bits,
                     std::size_t first, std::size_t count, float* out) noexcept {
  switch (bits) {
    case 8: return unpack_rows<8>(packed, rows, columns, first, count, out);
    case 4: return unpack_rows<4>(packed, rows, columns, first, count, out);
    case 2: return unpack_rows<2>(packed, rows, columns, first, count, out);
    default:
      const auto* halves = reinterpret_cast<const std::uint16_t*>(packed);
      return half_to_float({halves + first * columns, count * columns}, out);
  }
}

void dequantise(std::span<const std::byte> packed, std::size_t rows, std::size_t columns, int bits,
                float* out) noexcept {
  dequantise_rows(packed.data(), rows, columns, bits, 0, rows, out);
}

}  // namespace tiny_moe
