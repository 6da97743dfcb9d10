// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Arithmetic of the decoder: every kernel sums a row in one fixed order, independent of other rows.

#include <cstddef>
#include <cstdint>
#include <span>

namespace tiny_moe {

// Batch invariance makes "byte-identical" meaningful in this example: a token gives the same bits alone, in a prompt,
// or in any group of tokens. A plain GEMM does not: it chooses its blocking, and so its order of summation, by the
// shape of the batch. Two orders are used:
//   project     y[o] = ((x[0] w[0][o] + x[1] w[1][o]) + x[2] w[2][o]) + ..., vectorised over o
//   dot         eight lanes, lane l sums the places l, l+8, l+16, ...; then
//               ((l0 + l4) + (l2 + l6)) + ((l1 + l5) + (l3 + l7)), vectorised over l
// The library is compiled without contraction of a*b+c, so that inlining cannot change a bit.

/// Lanes of `dot`; every summed length is a multiple of it.
inline constexpr std::size_t lanes = 8;

/// Converts half precision to float. Exact, so both paths give the same bits (NaNs become quiet in both).
void half_to_float(std::span<const std::uint16_t> in, float* out) noexcept;
/// Reference path: integer arithmetic only.
void half_to_float_portable(std::span<const std::uint16_t> in, float* out) noexcept;
/// Whether `half_to_float` uses the F16C instructions of this machine.
[[nodiscard]] bool half_to_float_is_native() noexcept;

/// Sum of left[i] * right[i]. Pre: `count` is a multiple of `lanes`.
[[nodiscard]] float dot(const float* left, const float* right, std::size_t count) noexcept;

/// out[r][o] = sum over i of rows[r][i] * weights[i][o].
/// Shape: weights [inputs, outputs] (transposed against the file), rows [count, inputs], out
/// [count, outputs]. Pre: `outputs` is a multiple of `lanes`.
void project(const float* weights, std::size_t inputs, std::size_t outputs, const float* rows,
             std::size_t count, float* out) noexcept;

/// out = in / sqrt(mean(in^2) + epsilon) * weight, for one row. `out` may be `in`.
void rms_norm(const float* in, const float* weight, std::size_t size, float epsilon,
              float* out) noexcept;

/// Rotates one head in place: the pair (i, i + half) by the angle with the cosine and sine at i.
void rotate_half(float* head, const float* cosines, const float* sines, std::size_t half) noexcept;

/// Keys and values of one sequence in one layer: position p is row p % block_tokens of block p / block_tokens.
struct kv_rows {
  std::span<const float* const> blocks;
  std::size_t block_tokens = 0;
  std::size_t keys = 0;    ///< floats from the start of a block to its first row of keys
  std::size_t values = 0;  ///< floats from the start of a block to its first row of values
};

/// Softmax attention of one query row over the first `positions` rows of keys and values, head by head. The division
/// into blocks changes no bit.
/// Shape: query and out [heads * head_size], a row of keys or values the same, scores [positions] scratch.
/// Pre: `head_size` is a multiple of `lanes`; 1 <= positions <= rows of all blocks.
void attend(const float* query, const kv_rows& cache, std::size_t positions, std::size_t heads,
            std::size_t head_size, float* scores, float* out) noexcept;

/// Softmax of one row. `out` may be `in`.
void softmax(std::span<const float> in, float* out) noexcept;

/// Ids of the largest probabilities, largest first, ties to the lower id; and their shares of the chosen sum. Pre:
/// ids.size() == weights.size() <= probabilities.size().
void select_top_k(std::span<const float> probabilities, std::span<std::int32_t> ids,
                  std::span<float> weights) noexcept;

/// Place of the largest value, ties to the lower place; 0 if all are equal or NaN.
[[nodiscard]] std::size_t largest(std::span<const float> values) noexcept;

/// Tensors of one expert: gate and up [inner, hidden], down [hidden, inner]. At 16 bits they are halves as in the
/// file. Below, each points to a packed matrix (quantised.hpp), which begins with its scales, also halves.
struct expert_tensors {
  const std::uint16_t* gate = nullptr;
  const std::uint16_t* up = nullptr;
  const std::uint16_t* down = nullptr;
  int bits = 16;  ///< bits of a weight: 16, 8, 4 or 2
};

/// One row to compute: reads hidden row `token`, writes output row `place`.
struct expert_row {
  std::int32_t token = 0;
  std::int32_t place = 0;
};

/// Floats of scratch that `run_expert` needs for `rows` rows.
[[nodiscard]] std::size_t expert_scratch(std::size_t hidden_size, std::size_t inner_size,
                                         std::size_t rows) noexcept;

/// out[place] = down(silu(gate h) * up h) for h = hidden[token], for every row. Weights are converted once per call,
/// at any precision. Pre: hidden_size and inner_size are multiples of `lanes`; `scratch` holds `expert_scratch(...)`
/// floats.
void run_expert(const expert_tensors& expert, std::size_t hidden_size, std::size_t inner_size,
                const float* hidden, std::span<const expert_row> rows, float* out,
                float* scratch) noexcept;

}  // namespace tiny_moe
