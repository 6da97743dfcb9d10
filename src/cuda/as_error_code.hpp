// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Converts codes of the CUDA runtime and of the driver, and clears each returned error.

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "hotset/cuda/error.hpp"

namespace hotset::cuda {

/// Clears the returned error, so that a host application does not find it in cudaGetLastError. Keeps any other error.
inline error_code as_error_code(cudaError_t code) noexcept {
  if (code != cudaSuccess && cudaPeekAtLastError() == code) (void)cudaGetLastError();
  return static_cast<error_code>(code);
}
/// Returns whether a code has the runtime's, or the driver's, number.
template <class Theirs>
constexpr bool same(error_code ours, Theirs theirs) noexcept {
  return static_cast<int>(ours) == static_cast<int>(theirs);
}
/// The driver keeps no last error.
inline error_code as_error_code(CUresult code) noexcept { return static_cast<error_code>(code); }

/// Calls `call` with the address of a `Made`, and writes it to `out` on success only.
template <class Made, class Out, class Call>
error_code write_on_success(Out& out, Call call) noexcept {
  Made made{};
  const auto code = as_error_code(call(&made));
  if (code == error_code::success) out = made;
  return code;
}

}  // namespace hotset::cuda
