// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Adds the router's scores and hidden states to a visit; a trace stores them token by token.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/core/routing_view.hpp"
#include "hotset/trace/routing_trace.hpp"
#include "hotset/trace/visit_sequence.hpp"

namespace hotset {

/// Keeps references to both; a returned view is valid until the next call. Memory: the widest visit.
class visit_gather {
 public:
  /// Pre: sequence was built from trace; both outlive this.
  visit_gather(const routing_trace& trace, const visit_sequence& sequence)
      : trace_(&trace), sequence_(&sequence) {
    const auto rows = sequence.shape().tokens_per_visit();
    const auto experts = static_cast<std::size_t>(trace.experts);
    if (!trace.logits.empty()) logits_.resize(rows * experts);
    if (!trace.probabilities.empty()) probabilities_.resize(rows * experts);
    if (!trace.hidden.empty()) hidden_.resize(rows * static_cast<std::size_t>(trace.hidden_width));
    if (!trace.predictions.empty())
      predictions_.resize(rows * experts * static_cast<std::size_t>(trace.prediction_depth));
  }

  /// Visit i with everything recorded in the trace. Complexity: O(tokens * (E + d)).
  [[nodiscard]] routing_view operator[](std::size_t i) noexcept {
    auto view = (*sequence_)[i];
    const auto& v = sequence_->at(i);
    view.token_ids = token_ids(i);
    view.logits = collect(v, logits_, [this](std::size_t first, std::span<float> out) {
      for (std::size_t n = 0; n < out.size(); ++n) out[n] = trace_->logits[first + n];
    });
    view.probabilities =
        collect(v, probabilities_, [this](std::size_t first, std::span<float> out) {
          trace_->probabilities.convert(first, out);
        });
    view.hidden = collect(v, hidden_, [this](std::size_t first, std::span<float> out) {
      trace_->hidden.convert(first, out);
    });
    return view;
  }
  /// Token ids in the model's vocabulary; empty if they were not recorded.
  [[nodiscard]] std::span<const std::int32_t> token_ids(std::size_t i) const noexcept {
    if (trace_->token_ids.empty()) return {};
    const auto& v = sequence_->at(i);
    return std::span(trace_->token_ids).subspan(v.first_row, v.rows);
  }
  /// Recorded scores of the layers after visit i's: [tokens, D, E]; empty if there are none.
  [[nodiscard]] std::span<const float> predictions(std::size_t i) noexcept {
    return collect(sequence_->at(i), predictions_, [this](std::size_t first, std::span<float> out) {
      trace_->predictions.convert(first, out);
    });
  }

 private:
  template <class Copy>
  std::span<const float> collect(const visit& v, std::vector<float>& buffer, Copy copy) noexcept {
    if (buffer.empty()) return {};
    const auto width = buffer.size() / sequence_->shape().tokens_per_visit();
    const auto rows = v.count / sequence_->shape().ranks();
    for (std::size_t r = 0; r < rows; ++r) {
      const auto at =
          (v.first_row + r) * static_cast<std::size_t>(trace_->layers) + index_of(v.layer);
      copy(at * width, std::span(buffer).subspan(r * width, width));
    }
    return {buffer.data(), rows * width};
  }

  const routing_trace* trace_;
  const visit_sequence* sequence_;
  std::vector<float> logits_, probabilities_, hidden_, predictions_;
};

}  // namespace hotset
