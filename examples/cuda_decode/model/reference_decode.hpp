// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Decodes the same steps directly from the host's weights: no slots, no map, no device.

#include <vector>

#include "cuda_decode/decoder/host_kernels.hpp"
#include "cuda_decode/model/routing.hpp"
#include "cuda_decode/model/shape.hpp"
#include "hotset/transfer/memory_expert_source.hpp"

namespace cuda_decode {

/// Returns: the hidden vector after each of the first `steps` steps. Slow: the host computes every expert.
[[nodiscard]] std::vector<std::vector<float>> reference_decode(
    const model_shape& shape, const hotset::memory_expert_source& source,
    const decode_routing& routing, std::size_t steps);

}  // namespace cuda_decode
