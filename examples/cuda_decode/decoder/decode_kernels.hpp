// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Interface to the kernels of a decode step: on the device, or on the host with streams that a test controls.

#include <cstddef>
#include <cstdint>

#include "cuda_decode/model/expert_math.hpp"
#include "cuda_decode/model/numbers.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/platform/compiler.hpp"
#include "hotset/cuda/error.hpp"
#include "hotset/cuda/maps/mirror_kernel.hpp"
#include "hotset/cuda/runtime.hpp"

namespace cuda_decode {

/// Addresses of slots: tensor t of a slot begins at base[t] + slot * stride[t].
struct bank_view {
  const std::byte* base[hotset::expert_layout::max_tensors] = {};
  std::size_t stride[hotset::expert_layout::max_tensors] = {};
};

/// Position of a matrix within an expert's tensors.
struct matrix_place {
  std::uint32_t tensor = 0;
  std::uint32_t scales = 0;     ///< tensor; unused if the format has no scales
  std::size_t first_byte = 0;   ///< within the tensor
  std::size_t first_scale = 0;  ///< byte within the tensor of scales
  std::uint32_t columns = 0;
};

/// Shape of every expert of a model: gate and up [inner, hidden], down [hidden, inner].
struct expert_form {
  number_format format = number_format::bf16;
  std::uint32_t hidden = 0;
  std::uint32_t inner = 0;
  std::uint32_t block_rows = 1;
  std::uint32_t block_columns = 1;
  matrix_place gate{};
  matrix_place up{};
  matrix_place down{};
};

/// Experts of one visit. A place is one (token, rank): tokens * top_k places.
struct expert_arguments {
  expert_form form{};
  bank_view bank{};
  /// [places]; a place with an id out of range adds nothing.
  const hotset::expert_id* ids = nullptr;
  const hotset::slot_id* row = nullptr;  ///< [experts] of the layer, -1: not resident
  std::uint32_t experts = 0;
  std::uint32_t places = 0;
  std::uint32_t top_k = 0;
  const float* in = nullptr;  ///< [tokens, hidden]
  float* inner = nullptr;     ///< [places, inner]
  float* out = nullptr;  ///< [places, hidden]; 0 for a place without an expert or without its slot
  std::uint32_t* skipped = nullptr;  ///< incremented for each place whose expert had no slot
};

struct begin_arguments {
  const float* from = nullptr;       ///< [size]
  float* saved = nullptr;            ///< [size]; receives a copy of `from`; may be `from`
  float* hidden = nullptr;           ///< [size]; receives `from`, normalised
  std::uint32_t* skipped = nullptr;  ///< set to 0
  std::uint32_t size = 0;
};
struct normalize_arguments {
  const float* in = nullptr;
  float* out = nullptr;
  std::uint32_t size = 0;
};
/// hidden[t] += weights[t][0] * out[t][0] + weights[t][1] * out[t][1] + ..., in rank order.
struct combine_arguments {
  const float* weights = nullptr;  ///< [tokens, top_k]
  const float* out = nullptr;      ///< [tokens, top_k, size]
  float* hidden = nullptr;         ///< [tokens, size]
  std::uint32_t tokens = 1;
  std::uint32_t top_k = 0;
  std::uint32_t size = 0;
};
struct finish_arguments {
  const float* hidden = nullptr;
  float* carried = nullptr;  ///< input of the next step
  float* result = nullptr;   ///< page-locked host memory
  const std::uint32_t* skipped = nullptr;
  std::uint32_t* result_skipped = nullptr;  ///< page-locked host memory
  std::uint32_t size = 0;
};

/// Slot of a place's expert.
[[nodiscard]] HOTSET_HOST_DEVICE inline hotset::cuda::mirror_step::found slot_of(
    const expert_arguments& a, std::uint32_t place) noexcept {
  return hotset::cuda::mirror_step::look_up(a.ids[place], a.row, a.experts);
}
[[nodiscard]] HOTSET_HOST_DEVICE inline matrix_view matrix_in(const expert_form& form,
                                                              const matrix_place& place,
                                                              const std::byte* const* base,
                                                              const std::size_t* stride,
                                                              hotset::slot_id slot) noexcept {
  const auto at = index_of(slot);
  return {base[place.tensor] + at * stride[place.tensor] + place.first_byte,
          base[place.scales] + at * stride[place.scales] + place.first_scale, place.columns,
          form.block_rows, form.block_columns};
}

/// Element `i` of [tokens, size] plus the weighted outputs of its token's places.
[[nodiscard]] HOTSET_HOST_DEVICE inline float combined(const combine_arguments& a,
                                                       std::uint32_t i) noexcept {
  const std::size_t first = static_cast<std::size_t>(i / a.size) * a.top_k;
  float sum = a.hidden[i];
  for (std::size_t place = first; place < first + a.top_k; ++place)
    sum = fmaf(a.weights[place], a.out[place * a.size + i % a.size], sum);
  return sum;
}

/// Each call enqueues one kernel and returns the runtime's code. Threads: one at a time.
class decode_kernels {
 public:
  using error_code = hotset::cuda::error_code;
  using stream_handle = hotset::cuda::stream_handle;

  decode_kernels() = default;
  decode_kernels(const decode_kernels&) = delete;
  decode_kernels& operator=(const decode_kernels&) = delete;
  virtual ~decode_kernels() = default;

  virtual error_code begin(const begin_arguments& a, stream_handle stream) noexcept = 0;
  virtual error_code normalize(const normalize_arguments& a, stream_handle stream) noexcept = 0;
  /// inner[place] = silu(gate x) * (up x), x = in[token].
  virtual error_code gate_up(const expert_arguments& a, stream_handle stream) noexcept = 0;
  /// out[place] = down inner[place].
  virtual error_code down(const expert_arguments& a, stream_handle stream) noexcept = 0;
  virtual error_code combine(const combine_arguments& a, stream_handle stream) noexcept = 0;
  virtual error_code finish(const finish_arguments& a, stream_handle stream) noexcept = 0;
  virtual error_code mirror(const hotset::cuda::mirror_arguments& a,
                            stream_handle stream) noexcept = 0;
};

}  // namespace cuda_decode
