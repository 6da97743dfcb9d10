// SPDX-License-Identifier: Apache-2.0
#include "score_recorder.hpp"

#include <algorithm>
#include <span>
#include <stdexcept>
#include <utility>

#include "hotset/trace/half_array.hpp"

namespace hotset_llama_cpp {

using namespace hotset;

score_recorder::score_recorder(const geometry& shape, const std::vector<std::uint64_t>& layers,
                               const score_options& wanted)
    : shape_(shape), wanted_(wanted), tap_(layers) {}

void score_recorder::close_step(std::size_t tokens) {
  if (!shares_) {
    if (const auto bad = tap_.check()) throw std::runtime_error(bad->message);
    const auto& routers = tap_.routers();
    shares_.emplace(shape_, router_scores::config{.function = routers.back().scores.function});
    if (wanted_.next_layers > 0) next_.emplace(shape_, routers, wanted_.next_layers);
  }
  if (next_) predict(tokens);
}

void score_recorder::add_to(routing_view& view) {
  const auto& of = tap_.routers()[index_of(view.layer)];
  const auto experts = shape_.expert_count();
  probabilities_.resize(of.logits.size());
  for (std::size_t at = 0; at < of.logits.size(); at += experts)
    shares_->shares(std::span(of.logits).subspan(at, experts),
                    std::span(probabilities_).subspan(at, experts));
  view.logits = of.logits;
  view.probabilities = probabilities_;
  if (wanted_.hidden) view.hidden = of.input;
}

void score_recorder::predict(std::size_t tokens) {
  const auto& routers = tap_.routers();
  const auto row = static_cast<std::size_t>(wanted_.next_layers) * shape_.expert_count();
  const auto begin = predictions_.size();
  predictions_.resize(begin + tokens * routers.size() * row);
  for (std::size_t l = 0; l < routers.size(); ++l) {
    const auto expected = next_->expect(layer_id{static_cast<std::int32_t>(l)}, routers[l].input);
    for (std::size_t t = 0; t < tokens; ++t)
      std::ranges::transform(std::span(expected).subspan(t * row, row),
                             &predictions_[begin + (t * routers.size() + l) * row], float_to_half);
  }
}

void score_recorder::move_into(routing_trace& trace) {
  const bool is_softmax = tap_.routers().back().scores.function == score_function::softmax;
  trace.metadata = {{"logits", "router logits, before softmax or sigmoid"},
                    {"probabilities", is_softmax ? "softmax of the logits"
                                                 : "sigmoid of the logits, divided by the sum"}};
  if (!next_) return;
  trace.predictions = half_array(std::move(predictions_));
  trace.prediction_depth = wanted_.next_layers;
  trace.metadata.insert(
      trace.metadata.begin() + 1,
      {"predictions", "scores of the next layers' routers on this layer's router input"});
}

}  // namespace hotset_llama_cpp
