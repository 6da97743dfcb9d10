// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/experts/tracing_experts.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "hotset/core/status.hpp"
#include "hotset/trace/half_array.hpp"
#include "tiny_moe/experts/paged_experts.hpp"
#include "tiny_moe/model/kernels.hpp"

namespace tiny_moe {
namespace {

hotset::trace_recorder_config recorder_config(const model& weights, const tracing_config& config) {
  return {
      .shape = geometry_of(weights),
      .capacity = config.capacity,
      .logits = config.logits,
      .probabilities = config.probabilities,
      .token_ids = true,
      .hidden_width = config.hidden ? static_cast<std::int32_t>(weights.config().hidden_size) : 0,
      .name = config.name,
      .model = "tiny-moe",
      .source = "tiny_moe trace"};
}

}  // namespace

tracing_experts::tracing_experts(const model& weights, expert_provider& inner,
                                 const tracing_config& config)
    : model_(weights),
      inner_(inner),
      recorder_(hotset::trace_recorder::create(recorder_config(weights, config)).value()) {
  const model_config& shape = weights.config();
  if (config.predictions) predictions_.resize(config.capacity * shape.layers * shape.experts);
}

void tracing_experts::on_step(const step_inputs& step) {
  const auto tokens = step.token_ids.size();
  sequences_.assign(tokens, sequence_);
  const auto state = recorder_.begin_step(step.step, static_cast<hotset::request_class>(step.kind),
                                          tokens, sequences_);
  if (state != hotset::status::ok) {
    throw std::length_error(fmt::format("trace: a pass of {} tokens after {} of {}: {}", tokens,
                                        recorder_.tokens(), recorder_.capacity(),
                                        hotset::describe(state)));
  }
  inner_.on_step(step);
}

void tracing_experts::run(const visit_inputs& visit, visit_compute& compute) {
  const auto state = recorder_.record({
      .layer = visit.layer,
      .step = visit.step,
      .kind = static_cast<hotset::request_class>(visit.kind),
      .experts = visit.ids,
      .weights = visit.weights,
      .logits = visit.logits,
      .probabilities = visit.probabilities,
      .hidden = visit.hidden,
      .token_ids = visit.token_ids,
  });
  if (state != hotset::status::ok) throw provider_error("trace: a visit does not fit the model");
  const bool last = visit.layer + 1 == model_.config().layers;
  if (!predictions_.empty() && !last) predict(visit);
  inner_.run(visit, compute);
  if (last) (void)recorder_.end_step();
}

void tracing_experts::predict(const visit_inputs& visit) {
  const auto layer = index_of(visit.layer);
  scores_.resize(visit.tokens * visit.experts);
  project(model_.layer(layer + 1).router.data(), visit.hidden_size, visit.experts,
          visit.hidden.data(), visit.tokens, scores_.data());
  for (std::size_t t = 0; t < visit.tokens; ++t) {
    const auto row = std::span(scores_).subspan(t * visit.experts, visit.experts);
    softmax(row, row.data());
    const std::size_t place = (recorder_.tokens() + t) * model_.config().layers + layer;
    std::transform(row.begin(), row.end(),
                   predictions_.begin() + static_cast<std::ptrdiff_t>(place * visit.experts),
                   hotset::float_to_half);
  }
}

hotset::routing_trace tracing_experts::take() {
  auto trace = recorder_.take();
  if (trace.hidden_width > 0)
    trace.metadata.emplace_back("hidden", "input of router and experts, after the norm");
  if (!predictions_.empty()) {
    auto recorded = std::exchange(predictions_, std::vector<std::uint16_t>(predictions_.size()));
    recorded.resize(trace.tokens() * model_.config().layers * model_.config().experts);
    trace.predictions = hotset::half_array(std::move(recorded));
    trace.prediction_depth = 1;
    trace.metadata.emplace_back("predictions",
                                "softmax of the next layer's router on this layer's input");
  }
  return trace;
}

}  // namespace tiny_moe
