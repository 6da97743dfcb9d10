// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Compiler and processor: marks of functions, a hint to fetch memory, and the vector instructions to be had.

#include <cstddef>
#include <cstdint>

#include "hotset/version.hpp"

/// Marks a function that a CUDA kernel shares with the host, so that its logic is tested without a device.
#if defined(__CUDACC__)
#define HOTSET_HOST_DEVICE __host__ __device__
#else
#define HOTSET_HOST_DEVICE
#endif

/// Marks a function into which all that it calls is inlined. Not under a sanitizer: its checks multiply by the copies,
/// and a policy takes more than twice as long to compile.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HOTSET_FLATTEN
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HOTSET_FLATTEN
#endif
#endif
#if !defined(HOTSET_FLATTEN)
#define HOTSET_FLATTEN [[gnu::flatten]]
#endif

/// 1 if the compiler has the vector forms; a device's compiler has not.
#if defined(__GNUC__) && defined(__x86_64__) && !defined(__CUDACC__)
#define HOTSET_X86_VECTORS 1
#else
#define HOTSET_X86_VECTORS 0
#endif

namespace hotset {

/// Asks the processor for the cache line at `what`, which need not be valid. A hint: nothing depends on it but time.
inline void fetch_soon([[maybe_unused]] const void* what) noexcept {
#if defined(__GNUC__) && !defined(__CUDACC__)
  __builtin_prefetch(what);
#endif
}
/// Asks for the lines of `count` floats from `at` on.
inline void fetch_soon([[maybe_unused]] const float* at,
                       [[maybe_unused]] std::size_t count) noexcept {
  constexpr std::size_t a_line = 64 / sizeof(float);
  for (std::size_t i = 0; i < count; i += a_line) fetch_soon(at + i);
}

/// The vector instructions that kernels on the host use.
enum class vector_level : std::uint8_t { scalar, avx2, avx512 };

/// Asked at run time. Every processor with AVX2 and FMA converts halves, too.
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
