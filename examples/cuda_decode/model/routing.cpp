// SPDX-License-Identifier: Apache-2.0
#include "cuda_decode/model/routing.hpp"

#include <algorithm>

#include "lab/traces/synthetic/synthetic.hpp"

namespace cuda_decode {
namespace {

using hotset::each;
using hotset::expert_id;
using hotset::layer_id;

[[noreturn]] void refuse(const std::string& what, std::int64_t found, const std::string& accepted) {
  throw hotset::trace_error("the trace has " + std::to_string(found) + " " + what +
                            ", accepted: " + accepted);
}

bool is_first(std::span<const expert_id> ids, std::size_t at) {
  return ids[at] >= 0 && std::find(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(at),
                                   ids[at]) == ids.begin() + static_cast<std::ptrdiff_t>(at);
}

}  // namespace

decode_routing::decode_routing(const hotset::routing_trace& trace, const model_shape& shape,
                               std::size_t steps)
    : layers_(static_cast<std::size_t>(shape.layers)),
      top_k_(static_cast<std::size_t>(shape.top_k)),
      steps_(steps) {
  if (const auto bad = trace.validate()) throw hotset::trace_error(bad->message);
  if (trace.experts != shape.experts)
    refuse("experts", trace.experts, std::to_string(shape.experts) + " (" + shape.name + ")");
  if (trace.top_k != shape.top_k)
    refuse("experts a token", trace.top_k, std::to_string(shape.top_k) + " (" + shape.name + ")");
  if (trace.layers < shape.layers)
    refuse("layers", trace.layers, std::to_string(shape.layers) + " or more");
  const auto decoded = std::ranges::count(trace.kind, hotset::request_class::decode);
  if (static_cast<std::size_t>(decoded) < steps)
    refuse("decoded tokens", decoded, std::to_string(steps) + " or more (--steps, --warmup)");
  ids_.reserve(steps * layers_ * top_k_);
  for (std::size_t t = 0; ids_.size() < steps * layers_ * top_k_; ++t) {
    if (trace.kind[t] != hotset::request_class::decode) continue;
    for (const auto l : each<layer_id>(shape.layers)) {
      const auto ids = trace.ids_of(t, l);
      const auto weights = trace.weights_of(t, l);
      ids_.insert(ids_.end(), ids.begin(), ids.end());
      if (weights.empty())
        weights_.insert(weights_.end(), top_k_, 1.0F / static_cast<float>(top_k_));
      else
        weights_.insert(weights_.end(), weights.begin(), weights.end());
    }
  }
}

std::uint64_t decode_routing::distinct(std::size_t first, std::size_t last) const {
  std::uint64_t count = 0;
  for (auto s = first; s < last; ++s)
    for (const auto l : each<layer_id>(layers())) {
      const auto now = ids(s, l);
      for (std::size_t k = 0; k < top_k_; ++k)
        if (is_first(now, k)) ++count;
    }
  return count;
}

std::uint64_t decode_routing::turned_over(std::size_t first, std::size_t last) const {
  std::uint64_t count = 0;
  for (auto s = first; s < last; ++s)
    for (const auto l : each<layer_id>(layers())) {
      const auto now = ids(s, l);
      const auto before = ids(s - 1, l);
      for (std::size_t k = 0; k < top_k_; ++k)
        if (is_first(now, k) && std::ranges::find(before, now[k]) == before.end()) ++count;
    }
  return count;
}

decode_routing synthetic_routing(const model_shape& shape, const routing_statistics& statistics,
                                 std::size_t steps) {
  hotset::synthetic_config config;
  config.layers = shape.layers;
  config.experts = shape.experts;
  config.top_k = shape.top_k;
  config.tokens = static_cast<std::uint32_t>(steps);
  config.zipf = statistics.zipf;
  config.stickiness = statistics.stickiness;
  config.seed = statistics.seed;
  return decode_routing(hotset::synthetic_trace(config).value(), shape, steps);
}

}  // namespace cuda_decode
