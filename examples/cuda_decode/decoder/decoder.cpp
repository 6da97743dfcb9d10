// SPDX-License-Identifier: Apache-2.0
#include "cuda_decode/decoder/decoder.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>

#include "cuda_decode/model/first_token.hpp"

namespace cuda_decode {
namespace {

using hotset::each;
using hotset::expert_id;
using hotset::layer_id;

static_assert(sizeof(expert_id) == sizeof(std::uint32_t) && sizeof(float) == sizeof(std::uint32_t));

}  // namespace

std::string_view name_of(decode_mode mode) noexcept {
  switch (mode) {
    case decode_mode::eager: return "eager";
    case decode_mode::layer_graphs: return "layer-graphs";
    case decode_mode::step_graph: break;
  }
  return "step-graph";
}

decoder::decoder(const device_parts& parts, const model_shape& shape, experts_on_device& experts,
                 decode_mode mode, routing_known known)
    : parts_(parts),
      shape_(shape),
      experts_(experts),
      mode_(mode),
      known_(known),
      top_k_(static_cast<std::size_t>(shape.top_k)),
      places_(top_k_ * static_cast<std::size_t>(shape.layers)),
      stream_(hotset::cuda::stream::create(parts.api, parts.device).value()),
      saved_(parts.api, parts.device, shape.form.hidden),
      carried_(parts.api, parts.device, shape.form.hidden),
      hidden_(parts.api, parts.device, shape.form.hidden),
      normed_(parts.api, parts.device, shape.form.hidden),
      inner_(parts.api, parts.device, top_k_ * shape.form.inner),
      out_(parts.api, parts.device, top_k_ * shape.form.hidden),
      skipped_(parts.api, parts.device, 1),
      inputs_(parts.api, parts.device, 2 * places_),
      staged_inputs_(parts.api, 2 * places_),
      mirror_slots_(parts.api, parts.device, places_),
      missing_(parts.api, places_),
      mirrored_(parts.api, static_cast<std::size_t>(shape.layers)),
      result_(parts.api, shape.form.hidden),
      result_skipped_(parts.api, 1) {
  if (mode == decode_mode::step_graph && !experts.can_capture_steps())
    throw std::invalid_argument(
        "a step whose copies the host decides layer by layer cannot be one graph");
  const hotset::cuda::device_scope scope(parts.api, parts.device);
  put_first_token();
  if (mode == decode_mode::eager) return;
  // Launches every kernel once before any capture, because a first launch may load the kernel. The ids name no expert
  // here.
  std::ranges::fill(staged_inputs_.values().first(places_),
                    static_cast<std::uint32_t>(hotset::no_expert));
  upload_inputs();
  enqueue_begin(carried_.data());
  enqueue_layer(layer_id{0}, true);
  enqueue_finish();
  wait();
  put_first_token();
}

void decoder::put_first_token() {
  const auto first = result_.values();
  write_first_token(first);
  require(parts_.api,
          parts_.api.copy({carried_.data(), first.data(), first.size_bytes()}, stream_.handle()),
          "cudaMemcpyAsync");
  wait();
}

void decoder::upload_inputs() {
  const auto staged = staged_inputs_.values();
  require(parts_.api,
          parts_.api.copy({inputs_.data(), staged.data(), staged.size_bytes()}, stream_.handle()),
          "cudaMemcpyAsync");
}

decoder::~decoder() { (void)parts_.api.synchronize_stream(stream_.handle()); }

std::span<const float> decoder::step(std::span<const expert_id> ids,
                                     std::span<const float> weights) {
  if (ids.size() != places_ || weights.size() != places_)
    throw std::invalid_argument("a step of " + std::to_string(ids.size()) + " ids and " +
                                std::to_string(weights.size()) +
                                " weights, accepted: " + std::to_string(places_) + " of each");
  const hotset::cuda::device_scope scope(parts_.api, parts_.device);
  ids_.assign(ids.begin(), ids.end());
  const auto staged = staged_inputs_.values();  // the last step has finished
  for (std::size_t i = 0; i < places_; ++i) {
    staged[i] = static_cast<std::uint32_t>(ids[i]);
    staged[places_ + i] = std::bit_cast<std::uint32_t>(weights[i]);
  }
  upload_inputs();
  if (mode_ == decode_mode::step_graph)
    captured_step();
  else
    eager_step(carried_.data());
  ++counts_.steps;
  return result_.values();
}

std::span<const expert_id> decoder::missing(layer_id layer) const noexcept {
  return std::span(missing_.data() + place_of(layer), mirrored_.values()[index_of(layer)].missing);
}

void decoder::eager_step(const float* from) {
  enqueue_begin(from);
  for (const auto l : each<layer_id>(shape_.layers)) {
    if (known_ == routing_known::in_time && experts_.is_decided_by_host(l)) wait();
    experts_.serve(view_of_layer(l), stream_, [this, l](std::span<const std::uint32_t>) {
      if (mode_ == decode_mode::layer_graphs)
        launch_layer(l);
      else
        enqueue_layer(l, false);
    });
  }
  enqueue_finish();
  wait();
  require_all_computed();
}

// docs/cuda.md, "Capture", explains this order.
void decoder::captured_step() {
  experts_.publish(stream_);
  if (!step_graph_)
    step_graph_.emplace(graph::capture(parts_.api, parts_.graphs, stream_.handle(), [this] {
      enqueue_begin(carried_.data());
      for (const auto l : each<layer_id>(shape_.layers)) enqueue_layer(l, true);
      enqueue_finish();
    }));
  require(parts_.api, step_graph_->launch(stream_.handle()), "cudaGraphLaunch");
  wait();
  std::uint64_t missing = 0;
  for (const auto& layer : mirrored_.values()) missing += layer.missing;
  const auto skipped = result_skipped_.values()[0];
  if ((missing == 0) != (skipped == 0))
    throw std::logic_error("the mirror listed " + std::to_string(missing) + " experts, but " +
                           std::to_string(skipped) + " places were skipped");
  if (missing == 0) {
    const auto moved = experts_.traffic().bytes_moved;
    for (const auto l : each<layer_id>(shape_.layers)) visit_on_host(l);
    if (experts_.traffic().bytes_moved != moved)
      throw std::logic_error("the graph missed nothing, but the host's map did");
    return;
  }
  ++counts_.replayed_steps;
  counts_.missing_experts += missing;
  counts_.skipped_places += skipped;
  eager_step(saved_.data());
}

// Host accounting of a visit that the graph has made: only hits, so nothing is copied.
void decoder::visit_on_host(layer_id layer) {
  experts_.serve(view_of_layer(layer), stream_, [](std::span<const std::uint32_t>) {});
}

void decoder::enqueue_begin(const float* from) {
  require(parts_.api,
          parts_.kernels.begin({.from = from,
                                .saved = saved_.data(),
                                .hidden = hidden_.data(),
                                .skipped = skipped_.data(),
                                .size = shape_.form.hidden},
                               stream_.handle()),
          "begin");
}

void decoder::enqueue_layer(layer_id layer, bool with_mirror) {
  const auto stream = stream_.handle();
  const auto experts = arguments_of(layer);
  const auto place = place_of(layer);
  auto& kernels = parts_.kernels;
  require(parts_.api,
          kernels.normalize({hidden_.data(), normed_.data(), shape_.form.hidden}, stream),
          "normalize");
  if (with_mirror)
    require(parts_.api,
            kernels.mirror({.ids = experts.ids,
                            .count = static_cast<std::int64_t>(top_k_),
                            .row = experts.row,
                            .experts = shape_.experts,
                            .slots = mirror_slots_.data() + place,
                            .missing = missing_.data() + place,
                            .counts = mirrored_.data() + index_of(layer)},
                           stream),
            "mirror");
  require(parts_.api, kernels.gate_up(experts, stream), "gate_up");
  require(parts_.api, kernels.down(experts, stream), "down");
  const auto* const weights = reinterpret_cast<const float*>(inputs_.data() + places_);
  require(parts_.api,
          kernels.combine({.weights = weights + place,
                           .out = out_.data(),
                           .hidden = hidden_.data(),
                           .tokens = 1,
                           .top_k = static_cast<std::uint32_t>(top_k_),
                           .size = shape_.form.hidden},
                          stream),
          "combine");
}

void decoder::enqueue_finish() {
  require(parts_.api,
          parts_.kernels.finish({.hidden = hidden_.data(),
                                 .carried = carried_.data(),
                                 .result = result_.data(),
                                 .skipped = skipped_.data(),
                                 .result_skipped = result_skipped_.data(),
                                 .size = shape_.form.hidden},
                                stream_.handle()),
          "finish");
}

void decoder::launch_layer(layer_id layer) {
  // Layers come in order, so the next graph to capture is this layer's.
  if (layer == layer_graphs_.size())
    layer_graphs_.push_back(graph::capture(parts_.api, parts_.graphs, stream_.handle(),
                                           [&] { enqueue_layer(layer, false); }));
  require(parts_.api, layer_graphs_[layer].launch(stream_.handle()), "cudaGraphLaunch");
}

void decoder::wait() {
  require(parts_.api, parts_.api.synchronize_stream(stream_.handle()), "cudaStreamSynchronize");
}

void decoder::require_all_computed() const {
  if (const auto skipped = result_skipped_.values()[0]; skipped != 0)
    throw std::logic_error(std::to_string(skipped) + " places of step " +
                           std::to_string(counts_.steps) + " had no slot on the device");
}

hotset::routing_view decoder::view_of_layer(layer_id layer) const noexcept {
  hotset::routing_view view;
  view.layer = layer;
  view.step = counts_.steps;
  view.experts = std::span(ids_).subspan(place_of(layer), top_k_);
  return view;
}

expert_arguments decoder::arguments_of(layer_id layer) const noexcept {
  return {.form = shape_.form,
          .bank = view_of(experts_.bank()),
          .ids = reinterpret_cast<const expert_id*>(inputs_.data()) + place_of(layer),
          .row = experts_.row(layer),
          .experts = static_cast<std::uint32_t>(shape_.experts),
          .places = static_cast<std::uint32_t>(top_k_),
          .top_k = static_cast<std::uint32_t>(top_k_),
          .in = normed_.data(),
          .inner = inner_.data(),
          .out = out_.data(),
          .skipped = skipped_.data()};
}

}  // namespace cuda_decode
