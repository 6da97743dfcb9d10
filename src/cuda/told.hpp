// SPDX-License-Identifier: Apache-2.0
#pragma once
/// From the CUDA runtime's codes to ours, each of them told once.

#include <cuda_runtime_api.h>

#include "hotset/cuda/error.hpp"

namespace hotset::cuda {

/// What is returned is not found again in cudaGetLastError by a host application. Another error that waits there stays.
inline error_code told(cudaError_t code) noexcept {
  if (code != cudaSuccess && cudaPeekAtLastError() == code) (void)cudaGetLastError();
  return static_cast<error_code>(code);
}

}  // namespace hotset::cuda
