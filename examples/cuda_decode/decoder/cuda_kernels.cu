// SPDX-License-Identifier: Apache-2.0
// Each kernel follows the steps of its host version in host_kernels.cpp: a warp is the 32 lanes of a row's sum, a
// block the 256 lanes of a norm's. All arithmetic is in expert_math.hpp.
#include <cuda_runtime_api.h>

#include "cuda_decode/decoder/cuda_kernels.hpp"

namespace cuda_decode {
namespace {

constexpr unsigned int whole_warp = 0xffffffffU;
constexpr std::uint32_t rows_of_block = 8;  // one warp each
constexpr std::uint32_t threads_of_block = 256;

template <number_format Format>
__device__ float row_sum(const matrix_view& m, std::uint32_t row, const float* in) {
  float sum = lane_sum<Format>(m, row, in, threadIdx.x);
  for (std::uint32_t half = sum_lanes / 2; half != 0; half /= 2)
    sum += __shfl_down_sync(whole_warp, sum, half);
  return sum;  // valid in lane 0
}

__device__ void scaled(const float* in, std::uint32_t size, float* out) {
  __shared__ float lanes[norm_lanes];
  lanes[threadIdx.x] = lane_squares(in, size, threadIdx.x);
  __syncthreads();
  for (std::uint32_t half = norm_lanes / 2; half != 0; half /= 2) {
    if (threadIdx.x < half) lanes[threadIdx.x] += lanes[threadIdx.x + half];
    __syncthreads();
  }
  const float scale = norm_scale(lanes[0], size);
  for (std::uint32_t i = threadIdx.x; i < size; i += norm_lanes) out[i] = in[i] * scale;
}

__global__ void __launch_bounds__(norm_lanes) begin_step(begin_arguments a) {
  if (a.saved != a.from)
    for (std::uint32_t i = threadIdx.x; i < a.size; i += norm_lanes) a.saved[i] = a.from[i];
  scaled(a.from, a.size, a.hidden);
  if (threadIdx.x == 0) *a.skipped = 0;
}

__global__ void __launch_bounds__(norm_lanes) normalize_row(normalize_arguments a) {
  scaled(a.in, a.size, a.out);
}

// blockIdx.y is the place; each warp computes one row.
template <number_format Format>
__global__ void __launch_bounds__(sum_lanes* rows_of_block) gate_up_rows(expert_arguments a) {
  const std::uint32_t place = blockIdx.y;
  const std::uint32_t row = blockIdx.x * rows_of_block + threadIdx.y;
  const auto found = slot_of(a, place);
  if (found.is_missing && row == 0 && threadIdx.x == 0) atomicAdd(a.skipped, 1U);
  if (number(found.slot) < 0 || row >= a.form.inner) return;
  const float* const in = a.in + static_cast<std::size_t>(place / a.top_k) * a.form.hidden;
  const auto gate = matrix_in(a.form, a.form.gate, a.bank.base, a.bank.stride, found.slot);
  const auto up = matrix_in(a.form, a.form.up, a.bank.base, a.bank.stride, found.slot);
  const float g = row_sum<Format>(gate, row, in);
  const float u = row_sum<Format>(up, row, in);
  if (threadIdx.x == 0) a.inner[static_cast<std::size_t>(place) * a.form.inner + row] = silu(g) * u;
}

template <number_format Format>
__global__ void __launch_bounds__(sum_lanes* rows_of_block) down_rows(expert_arguments a) {
  const std::uint32_t place = blockIdx.y;
  const std::uint32_t row = blockIdx.x * rows_of_block + threadIdx.y;
  if (row >= a.form.hidden) return;
  const auto found = slot_of(a, place);
  float sum = 0;
  if (number(found.slot) >= 0) {
    const auto down = matrix_in(a.form, a.form.down, a.bank.base, a.bank.stride, found.slot);
    sum = row_sum<Format>(down, row, a.inner + static_cast<std::size_t>(place) * a.form.inner);
  }
  if (threadIdx.x == 0) a.out[static_cast<std::size_t>(place) * a.form.hidden + row] = sum;
}

__global__ void combine_places(combine_arguments a) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= a.tokens * a.size) return;
  a.hidden[i] = combined(a, i);
}

__global__ void finish_step(finish_arguments a) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i == 0) *a.result_skipped = *a.skipped;
  if (i < a.size) a.result[i] = a.carried[i] = a.hidden[i];
}

/// Clears the launch's error, so that the host application's cudaGetLastError does not report it.
template <class Arguments>
decode_kernels::error_code launch(void (*kernel)(Arguments), dim3 blocks, dim3 threads,
                                  Arguments arguments,
                                  decode_kernels::stream_handle stream) noexcept {
  void* parameters[] = {&arguments};
  const auto code = cudaLaunchKernel(kernel, blocks, threads, parameters, std::size_t{0}, stream);
  if (code != cudaSuccess && cudaPeekAtLastError() == code) (void)cudaGetLastError();
  return static_cast<decode_kernels::error_code>(code);
}

/// One thread per element, at least one block.
dim3 blocks_for(std::uint32_t count) {
  return dim3(count == 0 ? 1 : (count + threads_of_block - 1) / threads_of_block);
}

/// One warp for each of `rows` rows of each place.
decode_kernels::error_code launch_rows(void (*const (&kernels)[4])(expert_arguments),
                                       std::uint32_t rows, const expert_arguments& a,
                                       decode_kernels::stream_handle stream) noexcept {
  if (a.places == 0) return decode_kernels::error_code::success;
  const dim3 blocks((rows + rows_of_block - 1) / rows_of_block, a.places);
  return launch(kernels[static_cast<std::size_t>(a.form.format)], blocks,
                dim3(sum_lanes, rows_of_block), a, stream);
}

}  // namespace

decode_kernels::error_code cuda_kernels::begin(const begin_arguments& a,
                                               stream_handle stream) noexcept {
  return launch(begin_step, dim3(1), dim3(norm_lanes), a, stream);
}
decode_kernels::error_code cuda_kernels::normalize(const normalize_arguments& a,
                                                   stream_handle stream) noexcept {
  return launch(normalize_row, dim3(1), dim3(norm_lanes), a, stream);
}
decode_kernels::error_code cuda_kernels::gate_up(const expert_arguments& a,
                                                 stream_handle stream) noexcept {
  static constexpr void (*kernels[])(expert_arguments) = {
      gate_up_rows<number_format::bf16>, gate_up_rows<number_format::f16>,
      gate_up_rows<number_format::e4m3>, gate_up_rows<number_format::e2m1>};
  return launch_rows(kernels, a.form.inner, a, stream);
}
decode_kernels::error_code cuda_kernels::down(const expert_arguments& a,
                                              stream_handle stream) noexcept {
  static constexpr void (*kernels[])(expert_arguments) = {
      down_rows<number_format::bf16>, down_rows<number_format::f16>, down_rows<number_format::e4m3>,
      down_rows<number_format::e2m1>};
  return launch_rows(kernels, a.form.hidden, a, stream);
}
decode_kernels::error_code cuda_kernels::combine(const combine_arguments& a,
                                                 stream_handle stream) noexcept {
  return launch(combine_places, blocks_for(a.tokens * a.size), dim3(threads_of_block), a, stream);
}
decode_kernels::error_code cuda_kernels::finish(const finish_arguments& a,
                                                stream_handle stream) noexcept {
  return launch(finish_step, blocks_for(a.size), dim3(threads_of_block), a, stream);
}
decode_kernels::error_code cuda_kernels::mirror(const hotset::cuda::mirror_arguments& a,
                                                stream_handle stream) noexcept {
  return hotset::cuda::launch_mirror(a, stream);
}

}  // namespace cuda_decode
