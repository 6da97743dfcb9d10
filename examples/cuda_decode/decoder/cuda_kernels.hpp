// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Kernels of a decode step on a CUDA device.

#include "cuda_decode/decoder/decode_kernels.hpp"

namespace cuda_decode {

class cuda_kernels final : public decode_kernels {
 public:
  error_code begin(const begin_arguments& a, stream_handle stream) noexcept override;
  error_code normalize(const normalize_arguments& a, stream_handle stream) noexcept override;
  error_code gate_up(const expert_arguments& a, stream_handle stream) noexcept override;
  error_code down(const expert_arguments& a, stream_handle stream) noexcept override;
  error_code combine(const combine_arguments& a, stream_handle stream) noexcept override;
  error_code finish(const finish_arguments& a, stream_handle stream) noexcept override;
  error_code mirror(const hotset::cuda::mirror_arguments& a,
                    stream_handle stream) noexcept override;
};

}  // namespace cuda_decode
