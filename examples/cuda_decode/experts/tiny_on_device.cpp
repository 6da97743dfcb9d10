// SPDX-License-Identifier: Apache-2.0
#include "cuda_decode/experts/tiny_on_device.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <ostream>
#include <span>
#include <string>

#include "cuda_decode/experts/paged_experts.hpp"
#include "cuda_decode/experts/static_experts.hpp"
#include "lab/errors.hpp"
#include "tiny_moe/experts/paged_experts.hpp"
#include "tiny_moe/model/engine.hpp"

namespace cuda_decode {
namespace {

constexpr std::size_t vocabulary = tiny_moe::model_config::vocabulary;

bool equal_bytes(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

hotset::pool_layout layout_asked(const tiny_moe::model& weights, const std::string& budget) {
  try {
    return tiny_moe::layout_of(weights, hotset::cache_scope::shared, budget);
  } catch (const hotset::lab::usage_error& bad) {
    throw usage_error("--expert-budget: " + std::string(bad.what()));
  } catch (const hotset::lab::infeasible_error& bad) {
    throw infeasible_error("--expert-budget: " + std::string(bad.what()));
  }
}

}  // namespace

model_shape shape_of(const tiny_moe::model& weights) {
  const auto& config = weights.config();
  return make_shape("tiny", number_format::f16,
                    {.layers = static_cast<std::int32_t>(config.layers),
                     .experts = static_cast<std::int32_t>(config.experts),
                     .top_k = static_cast<std::int32_t>(config.top_k),
                     .hidden = static_cast<std::uint32_t>(config.hidden_size),
                     .inner = static_cast<std::uint32_t>(config.inner_size)});
}

hotset::memory_expert_source page_locked_source(const tiny_moe::model& weights,
                                                hotset::cuda::pinned_memory& pages) {
  const auto shape = shape_of(weights);
  const auto geometry = shape.geometry();
  auto source = hotset::memory_expert_source::create(geometry, {shape.layout()}).value();
  for (std::size_t i = 0; i < geometry.keys(); ++i) {
    const auto key = geometry.key(i);
    std::vector<hotset::tensor_bytes> copies;
    for (const auto tensor : weights.expert_bytes(index_of(key.layer), index_of(key.expert))) {
      const auto copy = pages.allocate(tensor.size()).value();
      std::ranges::copy(tensor, copy.begin());
      copies.emplace_back(copy);
    }
    hotset::require_valid(source.add(key, copies));
  }
  return source;
}

device_expert_provider::device_expert_provider(const device_parts& parts, const model_shape& shape,
                                               experts_on_device& experts, std::size_t max_tokens)
    : parts_(parts),
      shape_(shape),
      experts_(experts),
      stream_(hotset::cuda::stream::create(parts.api, parts.device).value()),
      staged_(parts.api, max_tokens * (static_cast<std::size_t>(shape.top_k) + shape.form.hidden)),
      inputs_(parts.api, parts.device, staged_.values().size()),
      inner_(parts.api, parts.device,
             max_tokens * static_cast<std::size_t>(shape.top_k) * shape.form.inner),
      outputs_(parts.api, max_tokens * static_cast<std::size_t>(shape.top_k) * shape.form.hidden),
      skipped_(parts.api, parts.device, 1),
      host_skipped_(parts.api, 1) {
  require(parts.api,
          parts.api.copy({skipped_.data(), host_skipped_.data(), sizeof(std::uint32_t)},
                         stream_.handle()),
          "cudaMemcpyAsync");
  require(parts.api, parts.api.synchronize_stream(stream_.handle()), "cudaStreamSynchronize");
}

device_expert_provider::~device_expert_provider() {
  (void)parts_.api.synchronize_stream(stream_.handle());
}

void device_expert_provider::run(const tiny_moe::visit_inputs& visit,
                                 tiny_moe::visit_compute& compute) {
  hotset::routing_view view;
  view.layer = visit.layer;
  view.step = visit.step;
  view.kind = static_cast<hotset::request_class>(visit.kind);
  view.experts = visit.ids;
  experts_.serve(view, stream_, [&](std::span<const std::uint32_t> tokens) {
    tokens_.assign(tokens.begin(), tokens.end());
    compute_group(visit);
    require(parts_.api, parts_.api.synchronize_stream(stream_.handle()), "cudaStreamSynchronize");
    if (host_skipped_.values()[0] != 0)
      throw tiny_moe::provider_error("layer " + to_string(visit.layer) +
                                     ": an expert had no slot on the device");
    compute.take(tokens_,
                 outputs_.values().first(tokens_.size() * visit.top_k * visit.hidden_size));
  });
}

// The group's tokens are consecutive on the device: first ids, then rows.
void device_expert_provider::compute_group(const tiny_moe::visit_inputs& visit) {
  const auto staged = staged_.values();
  const auto places = tokens_.size() * visit.top_k;
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const auto token = static_cast<std::size_t>(tokens_[i]);
    for (std::size_t k = 0; k < visit.top_k; ++k)
      staged[i * visit.top_k + k] = static_cast<std::uint32_t>(visit.ids[token * visit.top_k + k]);
    std::ranges::transform(
        visit.hidden.subspan(token * visit.hidden_size, visit.hidden_size),
        staged.begin() + static_cast<std::ptrdiff_t>(places + i * visit.hidden_size),
        [](float x) { return std::bit_cast<std::uint32_t>(x); });
  }
  const auto words = places + tokens_.size() * visit.hidden_size;
  const auto stream = stream_.handle();
  require(parts_.api,
          parts_.api.copy({inputs_.data(), staged.data(), words * sizeof(std::uint32_t)}, stream),
          "cudaMemcpyAsync");
  const expert_arguments arguments{
      .form = shape_.form,
      .bank = view_of(experts_.bank()),
      .ids = reinterpret_cast<const hotset::expert_id*>(inputs_.data()),
      .row = experts_.row(visit.layer),
      .experts = static_cast<std::uint32_t>(shape_.experts),
      .places = static_cast<std::uint32_t>(places),
      .top_k = static_cast<std::uint32_t>(visit.top_k),
      .in = reinterpret_cast<const float*>(inputs_.data() + places),
      .inner = inner_.data(),
      .out = outputs_.data(),
      .skipped = skipped_.data()};
  require(parts_.api, parts_.kernels.gate_up(arguments, stream), "gate_up");
  require(parts_.api, parts_.kernels.down(arguments, stream), "down");
  finish_arguments counted;  // without a vector, only for the count of skipped places
  counted.skipped = skipped_.data();
  counted.result_skipped = host_skipped_.data();
  require(parts_.api, parts_.kernels.finish(counted, stream), "finish");
}

tiny_run decode_tiny(const device_parts& parts, const tiny_moe::model& weights,
                     experts_on_device& experts, std::string_view prompt, std::size_t tokens) {
  device_expert_provider provider(parts, shape_of(weights), experts, prompt.size());
  tiny_moe::engine engine(weights, provider, {.max_tokens = prompt.size()});
  tiny_run out;
  const auto keep = [&](std::span<const float> logits) {
    out.logits.insert(out.logits.end(), logits.begin(), logits.end());
    const auto last = logits.last(vocabulary);
    out.text.push_back(static_cast<std::uint8_t>(tiny_moe::largest(last)));
  };
  keep(engine.forward({reinterpret_cast<const std::uint8_t*>(prompt.data()), prompt.size()}));
  while (out.text.size() < tokens) keep(engine.forward({&out.text.back(), 1}));
  return out;
}

int run_tiny(const program_options& asked, const device_parts& parts, std::ostream& out) {
  const tiny_moe::model weights(asked.model.empty() ? HOTSET_TINY_MOE_DIR : asked.model);
  const auto room = weights.config().max_positions;
  if (asked.prompt.empty() || asked.prompt.size() > room ||
      asked.tokens > room - asked.prompt.size() + 1)
    throw usage_error("--prompt of " + std::to_string(asked.prompt.size()) +
                      " bytes and --tokens " + std::to_string(asked.tokens) + ", accepted: 1.." +
                      std::to_string(room) + " bytes, and " + std::to_string(room + 1) + " in all");
  const auto layout = layout_asked(weights, asked.expert_budget);
  const auto shape = shape_of(weights);
  const std::vector layouts{shape.layout()};
  hotset::cuda::pinned_memory pages(parts.api, shape.all_bytes());
  const auto source = page_locked_source(weights, pages);

  auto stream = hotset::cuda::stream::create(parts.api, parts.device).value();
  tiny_run full;
  {
    static_experts experts(parts.api, layout.shape(), layouts, source, pages,
                           {.resident_layers = shape.layers, .device = parts.device}, stream);
    full = decode_tiny(parts, weights, experts, asked.prompt, asked.tokens);
  }
  paged_experts experts(parts.api, layout, layouts, source, pages,
                        {.device = parts.device, .eviction = asked.eviction});
  const auto paged = decode_tiny(parts, weights, experts, asked.prompt, asked.tokens);
  const auto stats = experts.stats();
  out << "tiny: " << layout.slots() << " of " << shape.geometry().keys()
      << " experts in slots on the device, " << stats.hits << " hits of " << stats.accesses << ", "
      << experts.traffic().bytes_moved << " bytes moved, " << stats.split_visits
      << " visits split\n";
  const bool same = equal_bytes(full.logits, paged.logits);
  out << "tiny: " << full.logits.size() / vocabulary << " rows of logits, paged "
      << (same ? "equal to" : "DIFFER from") << " full residency on the device"
      << (same ? ", byte for byte\n" : "\n");
  return same ? ok : failure;
}

}  // namespace cuda_decode
