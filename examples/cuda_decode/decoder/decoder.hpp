// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The decode loop: one token per step through all MoE layers, eagerly or from captured graphs.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "cuda_decode/decoder/decode_kernels.hpp"
#include "cuda_decode/decoder/device_memory.hpp"
#include "cuda_decode/decoder/graph.hpp"
#include "cuda_decode/experts/experts_on_device.hpp"
#include "cuda_decode/model/routing.hpp"
#include "cuda_decode/model/shape.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/cuda/stream.hpp"

namespace cuda_decode {

/// How the kernels of a step are launched.
enum class decode_mode : std::uint8_t {
  eager,         ///< one by one
  layer_graphs,  ///< a graph for each layer; resolve stays outside
  /// One graph for all layers; after misses, which are seen at its end, the step is replayed.
  step_graph,
};
/// "eager", "layer-graphs", "step-graph".
[[nodiscard]] std::string_view name_of(decode_mode mode) noexcept;

/// When the host learns a layer's routing.
enum class routing_known : std::uint8_t {
  /// After the previous layers: the host waits if it decides copies, as with a router's ids.
  in_time,
  ahead,  ///< before the step: the host never waits within a step
};

/// Device parts of a program, or a test's substitutes.
struct device_parts {
  hotset::cuda::runtime& api;
  decode_kernels& kernels;
  graph_api& graphs;
  int device = 0;
};

/// Totals since the decoder was made.
struct decode_counts {
  std::uint64_t steps = 0;
  std::uint64_t replayed_steps = 0;   ///< steps whose graph missed an expert
  std::uint64_t missing_experts = 0;  ///< listed by graphs
  std::uint64_t skipped_places = 0;   ///< (token, rank) skipped by graphs
};

/// Threads: one at a time. Allocates only at construction and at the first step of a mode.
class decoder {
 public:
  /// `experts` outlives the decoder. Errors: device_error, hotset::invalid_config.
  decoder(const device_parts& parts, const model_shape& shape, experts_on_device& experts,
          decode_mode mode, routing_known known);
  /// Waits for enqueued work.
  ~decoder();
  decoder(const decoder&) = delete;
  decoder& operator=(const decoder&) = delete;

  /// Decodes one token. Shape: ids and weights [layers, top_k]. Returns: the hidden vector, valid until the next
  /// step.
  /// Errors: device_error; std::logic_error if a place was skipped although its expert had a slot.
  std::span<const float> step(std::span<const hotset::expert_id> ids,
                              std::span<const float> weights);

  [[nodiscard]] const decode_counts& counts() const noexcept { return counts_; }
  /// Experts that the last step_graph step missed in a layer, in order of first appearance.
  [[nodiscard]] std::span<const hotset::expert_id> missing(hotset::layer_id layer) const noexcept;

 private:
  void put_first_token();
  void upload_inputs();
  void eager_step(const float* from);
  void captured_step();
  void visit_on_host(hotset::layer_id layer);
  void enqueue_begin(const float* from);
  void enqueue_layer(hotset::layer_id layer, bool with_mirror);
  void enqueue_finish();
  void launch_layer(hotset::layer_id layer);
  void wait();
  void require_all_computed() const;

  [[nodiscard]] hotset::routing_view view_of_layer(hotset::layer_id layer) const noexcept;
  [[nodiscard]] expert_arguments arguments_of(hotset::layer_id layer) const noexcept;
  [[nodiscard]] std::size_t place_of(hotset::layer_id layer) const noexcept {
    return index_of(layer) * top_k_;
  }

  device_parts parts_;
  model_shape shape_;
  experts_on_device& experts_;
  decode_mode mode_;
  routing_known known_;
  std::size_t top_k_;
  std::size_t places_;  ///< layers * top_k
  hotset::cuda::stream stream_;

  device_array<float> saved_;    ///< input of the running step
  device_array<float> carried_;  ///< input of the next step
  device_array<float> hidden_;
  device_array<float> normed_;
  device_array<float> inner_;  ///< [top_k, inner]
  device_array<float> out_;    ///< [top_k, hidden]
  device_array<std::uint32_t> skipped_;
  device_array<std::uint32_t> inputs_;  ///< ids, then weights: one copy a step
  pinned_array<std::uint32_t> staged_inputs_;
  device_array<hotset::slot_id> mirror_slots_;          ///< [layers, top_k]
  pinned_array<hotset::expert_id> missing_;             ///< [layers, top_k]; written by the device
  pinned_array<hotset::cuda::mirror_counts> mirrored_;  ///< [layers]; written by the device
  pinned_array<float> result_;
  pinned_array<std::uint32_t> result_skipped_;

  hotset::per_layer<graph> layer_graphs_;
  std::optional<graph> step_graph_;
  std::vector<hotset::expert_id> ids_;  ///< ids of the running step
  decode_counts counts_{};
};

}  // namespace cuda_decode
