// SPDX-License-Identifier: Apache-2.0
#pragma once
/// From the CUDA runtime's and the driver's codes to ours, each of them told once.

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "hotset/cuda/error.hpp"

namespace hotset::cuda {

/// What is returned is not found again in cudaGetLastError by a host application. Another error that waits there stays.
inline error_code told(cudaError_t code) noexcept {
  if (code != cudaSuccess && cudaPeekAtLastError() == code) (void)cudaGetLastError();
  return static_cast<error_code>(code);
}
/// Whether a code has the runtime's, or the driver's, number.
template <class Theirs>
constexpr bool same(error_code ours, Theirs theirs) noexcept {
  return static_cast<int>(ours) == static_cast<int>(theirs);
}
/// The driver has no such memory of its errors.
inline error_code told(CUresult code) noexcept { return static_cast<error_code>(code); }

/// Calls `call` with the address of a `Made`, and writes it to `out` on success only.
template <class Made, class Out, class Call>
error_code write_on_success(Out& out, Call call) noexcept {
  Made made{};
  const auto code = told(call(&made));
  if (code == error_code::success) out = made;
  return code;
}

}  // namespace hotset::cuda
