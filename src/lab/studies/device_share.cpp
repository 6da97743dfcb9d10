// SPDX-License-Identifier: Apache-2.0
#include "lab/studies/device_share.hpp"

#include <algorithm>

namespace hotset::lab {
namespace {

std::uint64_t divided_up(std::uint64_t whole, std::uint64_t parts) noexcept {
  return whole / parts + (whole % parts == 0 ? 0 : 1);
}

}  // namespace

expert_range experts_on(const plan_request& request, std::uint32_t device) noexcept {
  const auto all = static_cast<std::uint64_t>(request.model.experts.experts);
  if (request.split == device_split::tensor) return {0, all};
  // vLLM's linear placement: the first devices get one of the remaining experts each.
  const auto each = all / request.devices;
  const auto over = all % request.devices;
  return {device * each + std::min<std::uint64_t>(device, over), each + (device < over ? 1 : 0)};
}

std::uint32_t most_devices(const plan_request& request) noexcept {
  constexpr std::uint64_t most = 4096;
  if (request.split == device_split::expert)
    return static_cast<std::uint32_t>(
        std::min(most, static_cast<std::uint64_t>(request.model.experts.experts)));
  auto least = most;
  for (const auto l : each<layer_id>(request.model.experts.layers))
    least = std::min(least, request.model.experts.bytes_of(l));
  return static_cast<std::uint32_t>(least);
}

plan_request device_request(const plan_request& request, std::uint32_t device) {
  auto out = request;
  out.routing = nullptr;
  out.requests = nullptr;
  auto& experts = out.model.experts;
  if (request.routing != nullptr) experts.top_k = std::max(experts.top_k, request.routing->top_k);
  if (request.devices == 1) return out;
  out.concurrency = divided_up(request.concurrency, request.devices);
  if (request.split == device_split::tensor) {
    for (auto& bytes : experts.expert_bytes) bytes = divided_up(bytes, request.devices);
    return out;
  }
  experts.experts = static_cast<std::int32_t>(experts_on(request, device).count);
  experts.top_k = std::min(experts.top_k, experts.experts);
  return out;
}

routing_trace trace_on(const routing_trace& trace, const expert_range& experts,
                       std::int32_t top_k) {
  routing_trace out;
  out.layers = trace.layers;
  out.experts = static_cast<std::int32_t>(experts.count);
  out.top_k = top_k;
  out.step = trace.step;
  out.sequence = trace.sequence;
  out.kind = trace.kind;
  const auto width = static_cast<std::size_t>(top_k);
  out.ids.reserve(trace.tokens() * static_cast<std::size_t>(trace.layers) * width);
  const auto first = static_cast<expert_id>(experts.first);
  for (std::size_t t = 0; t < trace.tokens(); ++t)
    for (const auto l : each<layer_id>(trace.layers)) {
      const auto begin = out.ids.size();
      for (const auto id : trace.ids_of(t, l))
        if (id >= first && id < first + out.experts && out.ids.size() < begin + width)
          out.ids.push_back(expert_id{id - first});
      out.ids.resize(begin + width, no_expert);
    }
  return out;
}

kv_trace requests_on(const kv_trace& requests, std::uint32_t device, std::uint32_t devices) {
  kv_trace out;
  out.name = requests.name;
  out.source = requests.source;
  out.block_tokens = requests.block_tokens;
  for (std::size_t r = device; r < requests.requests(); r += devices) {
    out.timestamp.push_back(requests.timestamp[r]);
    out.input_length.push_back(requests.input_length[r]);
    out.output_length.push_back(requests.output_length[r]);
    const auto blocks = requests.blocks_of(r);
    out.blocks.insert(out.blocks.end(), blocks.begin(), blocks.end());
    out.block_end.push_back(out.blocks.size());
  }
  return out;
}

}  // namespace hotset::lab
