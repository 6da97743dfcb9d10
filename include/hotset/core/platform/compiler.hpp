// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Compiler and processor support: function attributes, a prefetch hint, and the available vector instructions.

#include <cstddef>
#include <cstdint>

#include "hotset/version.hpp"

/// Marks a function that CUDA kernels share with the host, so that its logic is tested without a device.
#if defined(__CUDACC__)
#define HOTSET_HOST_DEVICE __host__ __device__
#else
#define HOTSET_HOST_DEVICE
#endif

/// Inlines all calls in a function. Disabled under sanitizers: each inlined copy repeats their checks, and a policy
/// then takes more than twice as long to compile.
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

/// 1 if the compiler builds the x86 vector kernels; device compilers do not.
#if defined(__GNUC__) && defined(__x86_64__) && !defined(__CUDACC__)
#define HOTSET_X86_VECTORS 1
#else
#define HOTSET_X86_VECTORS 0
#endif

namespace hotset {

/// Prefetches the cache line at `what`. The address may be invalid. Only a performance hint.
inline void fetch_soon([[maybe_unused]] const void* what) noexcept {
#if defined(__GNUC__) && !defined(__CUDACC__)
  __builtin_prefetch(what);
#endif
}
/// Prefetches the cache lines of `count` floats from `at` on.
inline void fetch_soon([[maybe_unused]] const float* at,
                       [[maybe_unused]] std::size_t count) noexcept {
  constexpr std::size_t a_line = 64 / sizeof(float);
  for (std::size_t i = 0; i < count; i += a_line) fetch_soon(at + i);
}

/// Vector instructions that kernels on the host use.
enum class vector_level : std::uint8_t { scalar, avx2 };

/// Detects the level at run time. Every processor with AVX2 and FMA also has F16C, which converts half-precision
/// floats.
[[nodiscard]] inline vector_level best_vector_level() noexcept {
#if HOTSET_X86_VECTORS
  if (__builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0)
    return vector_level::avx2;
#endif
  return vector_level::scalar;
}

}  // namespace hotset
