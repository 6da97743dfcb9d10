// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Routing of a decode loop: one token per step, taken from a recorded or synthetic trace.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cuda_decode/model/shape.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/trace/routing_trace.hpp"

namespace cuda_decode {

/// Statistics of a synthetic routing (lab/traces/synthetic/synthetic.hpp).
struct routing_statistics {
  double zipf = 0.8;
  double stickiness = 0.5;
  std::uint64_t seed = 1;
};

/// Shape: ids and weights [steps, layers, top_k]; an id may be -1.
class decode_routing {
 public:
  /// Takes the first `steps` decoded tokens of a trace, and its first `layers` layers.
  /// Errors: hotset::trace_error if the trace is of another model or has too few decoded tokens.
  decode_routing(const hotset::routing_trace& trace, const model_shape& shape, std::size_t steps);

  [[nodiscard]] std::size_t steps() const noexcept { return steps_; }
  [[nodiscard]] std::int32_t layers() const noexcept { return static_cast<std::int32_t>(layers_); }
  [[nodiscard]] std::int32_t top_k() const noexcept { return static_cast<std::int32_t>(top_k_); }
  /// [layers, top_k] of one step. Pre: step < steps().
  [[nodiscard]] std::span<const hotset::expert_id> ids(std::size_t step) const noexcept {
    return std::span(ids_).subspan(step * layers_ * top_k_, layers_ * top_k_);
  }
  [[nodiscard]] std::span<const float> weights(std::size_t step) const noexcept {
    return std::span(weights_).subspan(step * layers_ * top_k_, layers_ * top_k_);
  }
  /// [top_k] of one layer in one step.
  [[nodiscard]] std::span<const hotset::expert_id> ids(std::size_t step,
                                                       hotset::layer_id layer) const noexcept {
    return ids(step).subspan(index_of(layer) * top_k_, top_k_);
  }

  /// Distinct experts of steps first..last-1, summed over layers.
  [[nodiscard]] std::uint64_t distinct(std::size_t first, std::size_t last) const;
  /// Distinct experts of steps first..last-1 that their layer did not route in the previous step. Pre: first >= 1.
  [[nodiscard]] std::uint64_t turned_over(std::size_t first, std::size_t last) const;

 private:
  std::size_t layers_;
  std::size_t top_k_;
  std::size_t steps_;
  std::vector<hotset::expert_id> ids_;
  std::vector<float> weights_;
};

/// Errors: hotset::invalid_config.
[[nodiscard]] decode_routing synthetic_routing(const model_shape& shape,
                                               const routing_statistics& statistics,
                                               std::size_t steps);

}  // namespace cuda_decode
