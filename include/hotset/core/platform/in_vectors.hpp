// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Runs a plain loop compiled for the vector level of the running processor.

#include "hotset/core/platform/compiler.hpp"

namespace hotset::detail {

#if HOTSET_X86_VECTORS
/// Flattened, so that everything the loop calls is inlined and compiled for AVX2.
template <class Loop>
__attribute__((target("avx2,fma"), flatten)) void run_with_avx2(const Loop& loop) noexcept {
  loop();
}
#endif

/// Calls loop() in AVX2 code unless `level` is scalar. The loop must fuse products and sums with std::fma or keep
/// them apart: a compiler may fuse `a * b + c`, and the levels then differ.
/// Pre: level <= best_vector_level().
template <class Loop>
void in_vectors([[maybe_unused]] vector_level level, const Loop& loop) noexcept {
#if HOTSET_X86_VECTORS
  if (level != vector_level::scalar) return run_with_avx2(loop);
#endif
  loop();
}

}  // namespace hotset::detail
