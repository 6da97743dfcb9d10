// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The decode loop: one token a step through all MoE layers, eagerly or from captured graphs.

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

/// How the kernels of a step reach the device.
enum class decode_mode : std::uint8_t {
  eager,         ///< one by one
  layer_graphs,  ///< a graph for each layer; resolve stays outside
  step_graph,    ///< one graph for all layers; misses are seen after it, and the step is replayed
};
/// "eager", "layer-graphs", "step-graph".
[[nodiscard]] std::string_view name_of(decode_mode mode) noexcept;

/// When the host knows what a layer routes.
enum class routing_known : std::uint8_t {
  in_time,  ///< when the layers before it are done: where the host decides copies it waits, as for a router's ids
  ahead,    ///< at once: nothing is waited for within a step
};

/// What a program is made of: the device's parts, or a test's.
struct device_parts {
  hotset::cuda::runtime& api;
  decode_kernels& kernels;
  graph_api& graphs;
  int device = 0;
};

/// Counted since the decoder was made.
struct decode_counts {
  std::uint64_t steps = 0;
  std::uint64_t replayed_steps = 0;   ///< whose graph missed an expert
  std::uint64_t missing_experts = 0;  ///< that graphs listed
  std::uint64_t skipped_places = 0;   ///< (token, rank) that graphs left out
};

/// Threads: one at a time. Allocates at construction and at the first step of a mode only.
class decoder {
 public:
  /// `experts` outlives the decoder. Errors: device_error, hotset::invalid_config.
  decoder(const device_parts& parts, const model_shape& shape, experts_on_device& experts,
          decode_mode mode, routing_known known);
  /// Waits for what is enqueued.
  ~decoder();
  decoder(const decoder&) = delete;
  decoder& operator=(const decoder&) = delete;

  /// One token. Shape: ids and weights [layers, top_k]. Returns: the hidden vector, valid until the next step.
  /// Errors: device_error; std::logic_error if a place was left out that should not have been.
  std::span<const float> step(std::span<const hotset::expert_id> ids,
                              std::span<const float> weights);

  [[nodiscard]] const decode_counts& counts() const noexcept { return counts_; }
  /// The experts that the last step_graph step missed in a layer, in the order of their first appearance there.
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

  device_array<float> saved_;    ///< what the running step began from
  device_array<float> carried_;  ///< what the next step begins from
  device_array<float> hidden_;
  device_array<float> normed_;
  device_array<float> inner_;  ///< [top_k, inner]
  device_array<float> out_;    ///< [top_k, hidden]
  device_array<std::uint32_t> skipped_;
  device_array<std::uint32_t> inputs_;  ///< ids, then weights: one copy a step
  pinned_array<std::uint32_t> staged_inputs_;
  device_array<hotset::slot_id> mirror_slots_;          ///< [layers, top_k]
  pinned_array<hotset::expert_id> missing_;             ///< [layers, top_k]; the device writes here
  pinned_array<hotset::cuda::mirror_counts> mirrored_;  ///< [layers]; likewise
  pinned_array<float> result_;
  pinned_array<std::uint32_t> result_skipped_;

  hotset::per_layer<graph> layer_graphs_;
  std::optional<graph> step_graph_;
  std::vector<hotset::expert_id> ids_;  ///< of the running step
  decode_counts counts_{};
};

}  // namespace cuda_decode
