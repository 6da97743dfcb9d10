// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Arms of a comparison: placements of the experts, and the results of their runs.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cuda_decode/decoder/decoder.hpp"
#include "cuda_decode/experts/paged_experts.hpp"
#include "cuda_decode/experts/static_experts.hpp"
#include "cuda_decode/model/routing.hpp"
#include "cuda_decode/model/shape.hpp"
#include "cuda_decode/model/weights.hpp"
#include "hotset/cuda/copies/pinned_memory.hpp"

namespace cuda_decode {

enum class arm_kind : std::uint8_t { static_offload, hotset, full_residency };

struct arm {
  arm_kind kind = arm_kind::full_residency;
  /// hotset: slots per layer; static_offload: the hotset cap whose memory it may use.
  std::int32_t cap = 0;
  std::int32_t resident_layers = 0;  ///< static_offload
  decode_mode mode = decode_mode::eager;

  /// Returns "hotset cap 16", "static, 5 of 48 layers resident" or "full residency"; without the mode.
  [[nodiscard]] std::string name(const model_shape& shape) const;
};

/// Settings shared by all arms of a comparison.
struct comparison {
  const device_parts& parts;
  const model_shape& shape;
  const hotset::memory_expert_source& source;
  const hotset::cuda::pinned_memory& pages;
  const decode_routing& routing;
  std::size_t warmup = 0;  ///< steps before the measured ones
  routing_known known = routing_known::in_time;
  offload_fetch fetch = offload_fetch::routed;
  std::string eviction = "lru";  ///< for hotset's arms
};

struct arm_result {
  arm what;
  std::uint64_t device_bytes = 0;  ///< bytes of expert slots
  // Over the measured steps.
  std::size_t steps = 0;
  double seconds = 0;
  expert_traffic traffic{};
  decode_counts counts{};
  // Over all steps.
  std::uint64_t hash = 0;
  std::vector<float> hidden;  ///< after the last one

  [[nodiscard]] double tokens_per_second() const noexcept {
    return seconds > 0 ? static_cast<double>(steps) / seconds : 0;
  }
  [[nodiscard]] double bytes_per_second() const noexcept {
    return seconds > 0 ? static_cast<double>(traffic.bytes_moved) / seconds : 0;
  }
  [[nodiscard]] double bytes_per_step() const noexcept {
    return steps > 0 ? static_cast<double>(traffic.bytes_moved) / static_cast<double>(steps) : 0;
  }
  [[nodiscard]] double hit_rate() const noexcept {
    return traffic.accesses > 0
               ? static_cast<double>(traffic.hits) / static_cast<double>(traffic.accesses)
               : 0;
  }
};

/// Default caps: 16, 32 and 64 if a layer has more experts, and all experts. For a layer of at most 16 experts a
/// quarter, half, three quarters, and all. None is below top_k.
[[nodiscard]] std::vector<std::int32_t> default_caps(const model_shape& shape);

/// For each cap, hotset and, if possible, static offload with the same number of slots; then full residency. Modes
/// that an arm cannot run are left out: a step with static offload cannot be one graph.
[[nodiscard]] std::vector<arm> arms_of(const model_shape& shape, std::span<const std::int32_t> caps,
                                       std::span<const decode_mode> modes, offload_fetch fetch);

/// Device bytes of an arm's experts, without padding.
[[nodiscard]] std::uint64_t slot_bytes(const arm& what, const model_shape& shape,
                                       offload_fetch fetch) noexcept;

/// Errors: device_error, hotset::invalid_config, std::logic_error.
[[nodiscard]] arm_result run_arm(const comparison& with, const arm& what);

/// Adds the bits of a vector to a running hash.
[[nodiscard]] std::uint64_t hashed(std::uint64_t hash, std::span<const float> values) noexcept;

/// Arms whose bits differ from the first one's, one line each; empty if all are equal.
[[nodiscard]] std::vector<std::string> differences(std::span<const arm_result> results,
                                                   const model_shape& shape);

}  // namespace cuda_decode
