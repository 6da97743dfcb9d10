// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What kernels on the host may use of the processor, asked at run time.

#include <cstdint>

#include "hotset/version.hpp"

/// 1 where the compiler has the vector forms; a device's compiler has not.
#if defined(__GNUC__) && defined(__x86_64__) && !defined(__CUDACC__)
#define HOTSET_X86_VECTORS 1
#else
#define HOTSET_X86_VECTORS 0
#endif

namespace hotset {

/// What the kernels use of the processor.
enum class vector_level : std::uint8_t { scalar, avx2, avx512 };

/// Every processor with AVX2 and FMA converts halves, too.
[[nodiscard]] inline vector_level best_vector_level() noexcept {
#if HOTSET_X86_VECTORS
  if (__builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
      __builtin_cpu_supports("avx512vnni") != 0)
    return vector_level::avx512;
  if (__builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0)
    return vector_level::avx2;
#endif
  return vector_level::scalar;
}

}  // namespace hotset
