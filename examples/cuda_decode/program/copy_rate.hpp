// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Rate of plain page-locked copies, expert by expert: the baseline for fills.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "cuda_decode/decoder/device_memory.hpp"
#include "cuda_decode/model/shape.hpp"
#include "hotset/cuda/stream.hpp"
#include "hotset/transfer/memory_expert_source.hpp"

namespace cuda_decode {

/// Copies the experts of the first layers, tensor by tensor, to one place: at least `bytes` in all, after an
/// uncounted pass. Returns: bytes per second. Errors: device_error.
[[nodiscard]] inline double plain_copy_rate(hotset::cuda::runtime& api, int device,
                                            const model_shape& shape,
                                            const hotset::memory_expert_source& source,
                                            std::uint64_t bytes = std::uint64_t{4} << 30U) {
  std::size_t largest = 0;
  for (const auto& t : shape.tensors) largest = std::max(largest, t.bytes);
  const device_array<std::byte> place(api, device, largest);
  const auto stream = hotset::cuda::stream::create(api, device).value();
  const auto geometry = shape.geometry();
  const auto pass = [&] {
    std::uint64_t moved = 0;
    for (std::size_t i = 0; moved < bytes; i = (i + 1) % geometry.keys())
      for (const auto tensor : source.tensors(geometry.key(i), hotset::precision_id{0})) {
        require(api, api.copy({place.data(), tensor.data(), tensor.size()}, stream.handle()),
                "cudaMemcpyAsync");
        moved += tensor.size();
      }
    require(api, api.synchronize_stream(stream.handle()), "cudaStreamSynchronize");
    return moved;
  };
  const hotset::cuda::device_scope scope(api, device);
  (void)pass();
  const auto start = std::chrono::steady_clock::now();
  const auto moved = pass();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return static_cast<double>(moved) / seconds.count();
}

}  // namespace cuda_decode
