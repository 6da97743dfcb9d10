// SPDX-License-Identifier: Apache-2.0
#include "kernels.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include <Eigen/Core>

#include "quantised.hpp"

#if defined(__x86_64__) && defined(__GNUC__)
#define TINY_MOE_F16C 1
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace tiny_moe {
namespace {

// Eigen provides only the vector type: fixed-size arrays, coefficient-wise. Its reductions and products are not used,
// because their order of summation depends on alignment and shape.
using lane_array = Eigen::Array<float, static_cast<int>(lanes), 1, Eigen::DontAlign>;
using lane_view = Eigen::Map<const lane_array>;
using row_array = Eigen::Map<Eigen::ArrayXf>;
using row_view = Eigen::Map<const Eigen::ArrayXf>;

constexpr std::size_t rows_at_once =
    4;  // weight rows per pass: independent sums, each in the order of `dot`

float sum_of(const lane_array& a) noexcept {
  return ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]));
}

// Four dot products of one vector with rows `stride` apart; same bits as four calls of `dot`.
void dot_rows(const float* rows, std::size_t stride, const float* vector, std::size_t count,
              float* out) noexcept {
  const float* row0 = rows;
  const float* row1 = rows + stride;
  const float* row2 = rows + 2 * stride;
  const float* row3 = rows + 3 * stride;
  lane_array sum0 = lane_array::Zero();
  lane_array sum1 = lane_array::Zero();
  lane_array sum2 = lane_array::Zero();
  lane_array sum3 = lane_array::Zero();
  for (std::size_t i = 0; i < count; i += lanes) {
    const lane_view x(vector + i);
    sum0 += lane_view(row0 + i) * x;
    sum1 += lane_view(row1 + i) * x;
    sum2 += lane_view(row2 + i) * x;
    sum3 += lane_view(row3 + i) * x;
  }
  out[0] = sum_of(sum0);
  out[1] = sum_of(sum1);
  out[2] = sum_of(sum2);
  out[3] = sum_of(sum3);
}

// Adds factors[i] * rows[i] to Blocks * 8 columns, in row order, in registers.
template <std::size_t Blocks>
void add_block(const float* rows, std::size_t stride, const float* factors, std::size_t count,
               float* out) noexcept {
  lane_array sum[Blocks];
  for (std::size_t b = 0; b < Blocks; ++b) sum[b] = lane_view(out + b * lanes);
  for (std::size_t i = 0; i < count; ++i) {
    const float factor = factors[i];
    const float* row = rows + i * stride;
    for (std::size_t b = 0; b < Blocks; ++b) sum[b] += lane_view(row + b * lanes) * factor;
  }
  for (std::size_t b = 0; b < Blocks; ++b) Eigen::Map<lane_array>(out + b * lanes) = sum[b];
}

// out[c] += sum over i of factors[i] * rows[i][c], for `columns` columns of rows `stride` apart. Several calls give
// the bits of one call with all rows.
void add_rows(const float* rows, std::size_t stride, const float* factors, std::size_t count,
              std::size_t columns, float* out) noexcept {
  std::size_t c = 0;
  for (; c + 4 * lanes <= columns; c += 4 * lanes) {
    add_block<4>(rows + c, stride, factors, count, out + c);
  }
  switch ((columns - c) / lanes) {
    case 3: return add_block<3>(rows + c, stride, factors, count, out + c);
    case 2: return add_block<2>(rows + c, stride, factors, count, out + c);
    case 1: return add_block<1>(rows + c, stride, factors, count, out + c);
    default: return;
  }
}

// scores[p] = keys[p] . query, for rows of keys `stride` apart.
void dot_all(const float* keys, std::size_t stride, const float* query, std::size_t count,
             std::size_t positions, float* scores) noexcept {
  std::size_t p = 0;
  for (; p + rows_at_once <= positions; p += rows_at_once) {
    dot_rows(keys + p * stride, stride, query, count, scores + p);
  }
  for (; p < positions; ++p) scores[p] = dot(keys + p * stride, query, count);
}

float silu(float x) noexcept { return x / (1.0F + std::exp(-x)); }

// Converts `rows_at_once` rows, from `first` on, of an expert's tensor of `rows` rows.
void weights_to_float(const std::uint16_t* tensor, std::size_t rows, std::size_t columns, int bits,
                      std::size_t first, float* out) noexcept {
  if (bits == 16) {
    return half_to_float({tensor + first * columns, rows_at_once * columns}, out);
  }
  dequantise_rows(reinterpret_cast<const std::byte*>(tensor), rows, columns, bits, first,
                  rows_at_once, out);
}

float half_to_float_one(std::uint16_t half) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16U;
  const std::uint32_t shifted = static_cast<std::uint32_t>(half & 0x7FFFU) << 13U;
  const std::uint32_t exponent = shifted & 0x0F800000U;
  const std::uint32_t normal = shifted + 0x38000000U;  // rebias: 127 - 15
  // A subnormal half is mantissa * 2^-24: compute 2^-14 + that, then subtract 2^-14; both steps are exact.
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(
      std::bit_cast<float>(shifted + 0x38800000U) - std::bit_cast<float>(0x38800000U));
  const std::uint32_t special =
      (shifted + 0x70000000U) |
      ((shifted & 0x007FFFFFU) != 0 ? 0x00400000U : 0U);  // infinity, or a quiet NaN
  std::uint32_t bits = normal;
  bits = exponent == 0 ? subnormal : bits;
  bits = exponent == 0x0F800000U ? special : bits;
  return std::bit_cast<float>(bits | sign);
}

#ifdef TINY_MOE_F16C
__attribute__((target("avx,f16c"))) void half_to_float_f16c(std::span<const std::uint16_t> in,
                                                            float* out) noexcept {
  std::size_t i = 0;
  for (; i + 8 <= in.size(); i += 8) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in.data() + i));
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(halves));
  }
  for (; i < in.size(); ++i) out[i] = half_to_float_one(in[i]);
}

bool machine_has_f16c() noexcept {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return false;
  return (c & (1U << 29U)) != 0 &&
         __builtin_cpu_supports("avx") != 0;  // "avx" checks that the system saves the registers
}
#endif

}  // namespace

void half_to_float_portable(std::span<const std::uint16_t> in, float* out) noexcept {
  for (std::size_t i = 0; i < in.size(); ++i) out[i] = half_to_float_one(in[i]);
}

bool half_to_float_is_native() noexcept {
#ifdef TINY_MOE_F16C
  static const bool native = machine_has_f16c();
  return native;
#else
  return false;
#endif
}

void half_to_float(std::span<const std::uint16_t> in, float* out) noexcept {
#ifdef TINY_MOE_F16C
  if (half_to_float_is_native()) return half_to_float_f16c(in, out);
#endif
  half_to_float_portable(in, out);
}

float dot(const float* left, const float* right, std::size_t count) noexcept {
  lane_array sum = lane_array::Zero();
  for (std::size_t i = 0; i < count; i += lanes) sum += lane_view(left + i) * lane_view(right + i);
  return sum_of(sum);
}

void project(const float* weights, std::size_t inputs, std::size_t outputs, const float* rows,
             std::size_t count, float* out) noexcept {
  for (std::size_t r = 0; r < count; ++r) {
    std::fill_n(out + r * outputs, outputs, 0.0F);
    add_rows(weights, outputs, rows + r * inputs, inputs, outputs, out + r * outputs);
  }
}

void rms_norm(const float* in, const float* weight, std::size_t size, float epsilon,
              float* out) noexcept {
  const float mean = dot(in, in, size) / static_cast<float>(size);
  const float scale = 1.0F / std::sqrt(mean + epsilon);
  const auto n = static_cast<Eigen::Index>(size);
  row_array(out, n) = row_view(in, n) * scale * row_view(weight, n);
}

void rotate_half(float* head, const float* cosines, const float* sines, std::size_t half) noexcept {
  for (std::size_t i = 0; i < half; ++i) {
    const float first = head[i];
    const float second = head[i + half];
    head[i] = first * cosines[i] - second * sines[i];
    head[i + half] = second * cosines[i] + first * sines[i];
  }
}

void attend(const float* query, const kv_rows& cache, std::size_t positions, std::size_t heads,
            std::size_t head_size, float* scores, float* out) noexcept {
  const std::size_t width = heads * head_size;
  const float scale = 1.0F / std::sqrt(static_cast<float>(head_size));
  // Calls part(block, first position, positions) for each block with positions.
  const auto by_block = [&](auto part) {
    for (std::size_t p = 0; p < positions; p += cache.block_tokens) {
      part(cache.blocks[p / cache.block_tokens], p, std::min(cache.block_tokens, positions - p));
    }
  };
  for (std::size_t h = 0; h < heads; ++h) {
    const std::size_t offset = h * head_size;
    by_block([&](const float* block, std::size_t p, std::size_t count) {
      dot_all(block + cache.keys + offset, width, query + offset, head_size, count, scores + p);
    });
    for (std::size_t p = 0; p < positions; ++p) scores[p] *= scale;
    softmax({scores, positions}, scores);
    std::fill_n(out + offset, head_size, 0.0F);
    by_block([&](const float* block, std::size_t p, std::size_t count) {
      add_rows(block + cache.values + offset, width, scores + p, count, head_size, out + offset);
    });
  }
}

void softmax(std::span<const float> in, float* out) noexcept {
  float top = -std::numeric_limits<float>::infinity();
  for (const float value : in) top = value > top ? value : top;
  float sum = 0.0F;
  for (std::size_t i = 0; i < in.size(); ++i) {
    out[i] = std::exp(in[i] - top);
    sum += out[i];
  }
  const float scale = 1.0F / sum;
  for (std::size_t i = 0; i < in.size(); ++i) out[i] *= scale;
}

void select_top_k(std::span<const float> probabilities, std::span<std::int32_t> ids,
                  std::span<float> weights) noexcept {
  float sum = 0.0F;
  for (std::size_t rank = 0; rank < ids.size(); ++rank) {
    std::size_t best = probabilities.size();
    for (std::size_t e = 0; e < probabilities.size(); ++e) {
      const auto chosen = ids.first(rank);
      if (std::find(chosen.begin(), chosen.end(), static_cast<std::int32_t>(e)) != chosen.end())
        continue;
      if (best == probabilities.size() || probabilities[e] > probabilities[best]) best = e;
    }
    ids[rank] = static_cast<std::int32_t>(best);
    weights[rank] = probabilities[best];
    sum += probabilities[best];
  }
  for (float& weight : weights) weight /= sum;
}

std::size_t largest(std::span<const float> values) noexcept {
  std::size_t best = 0;
  for (std::size_t i = 1; i < values.size(); ++i) {
    if (values[i] > values[best]) best = i;
  }
  return best;
}

std::size_t expert_scratch(std::size_t hidden_size, std::size_t inner_size,
                           std::size_t rows) noexcept {
  return 2 * rows_at_once * std::max(hidden_size, inner_size) + rows * inner_size;
}

// NOLINTBEGIN(bugprone-easily-swappable-parameters): output, then scratch
void run_expert(const expert_tensors& expert, std::size_t hidden_size, std::size_t inner_size,
                const float* hidden, std::span<const expert_row> rows, float* out,
                float* scratch) noexcept {
  // NOLINTEND(bugprone-easily-swappable-parameters)
  const std::size_t widest = rows_at_once * std::max(hidden_size, inner_size);
  float* first = scratch;               // four rows of gate, then four rows of down
  float* second = scratch + widest;     // four rows of up
  float* inner = scratch + 2 * widest;  // [rows, inner_size]
  float gate[rows_at_once];
  float up[rows_at_once];

  for (std::size_t j = 0; j < inner_size; j += rows_at_once) {
    weights_to_float(expert.gate, inner_size, hidden_size, expert.bits, j, first);
    weights_to_float(expert.up, inner_size, hidden_size, expert.bits, j, second);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const float* row = hidden + static_cast<std::size_t>(rows[r].token) * hidden_size;
      dot_rows(first, hidden_size, row, hidden_size, gate);
      dot_rows(second, hidden_size, row, hidden_size, up);
      for (std::size_t i = 0; i < rows_at_once; ++i)
        inner[r * inner_size + j + i] = silu(gate[i]) * up[i];
    }
  }
  for (std::size_t o = 0; o < hidden_size; o += rows_at_once) {
    weights_to_float(expert.down, hidden_size, inner_size, expert.bits, o, first);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      dot_rows(first, inner_size, inner + r * inner_size, inner_size,
               out + static_cast<std::size_t>(rows[r].place) * hidden_size + o);
    }
  }
}

}  // namespace tiny_moe
