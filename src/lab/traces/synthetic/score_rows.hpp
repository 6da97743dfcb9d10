// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Recorded router scores of a synthetic trace, and the predictions derived from them.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/trace/half_array.hpp"
#include "hotset/trace/routing_trace.hpp"
#include "lab/traces/synthetic/integer_math.hpp"
#include "lab/traces/synthetic/noisy_predictions.hpp"
#include "lab/traces/synthetic/synthetic_config.hpp"

namespace hotset {
namespace detail {

/// Rows of logits, probabilities and predictions, layer by layer, token by token.
///
/// Logits of the routed experts descend strictly in rank order and all others are strictly below. After rounding to
/// half precision, each other probability is strictly below those of the routed experts, too. Ties are broken by one
/// step. The last layer predicts nothing: zeros.
class score_rows {
 public:
  explicit score_rows(const synthetic_config& config)
      : layers_(static_cast<std::size_t>(config.layers)),
        noise_(config),
        routed_(static_cast<std::size_t>(config.experts)) {}

  /// Adds the current token's next layer. `logits`: of all experts, in steps of 2^-18; ties are broken in place.
  /// `masses`: proportional to the probabilities, in the order of the logits; `total`: their sum.
  void add(id_view<expert_id> ids, std::span<std::int64_t> logits,
           std::span<const std::uint64_t> masses, std::uint64_t total) {
    routed_.assign(routed_.size(), false);
    for (const auto id : ids) routed_[id] = true;
    add_logits(ids, logits);
    add_probabilities(ids, masses, total);
  }

  /// Call after the last layer of a token.
  void end_token() {
    const auto experts = routed_.size();
    const auto token = predictions_.size();
    predictions_.resize(token + layers_ * experts, 0);
    for (auto row = token; row + experts < predictions_.size(); row += experts) {
      const auto next = row + experts;
      noise_.predict(std::span(logits_).subspan(next, experts),
                     std::span(probabilities_).subspan(next, experts),
                     std::span(predictions_).subspan(row, experts));
    }
  }

  /// `logits`: description of their kind.
  void move_into(routing_trace& trace, std::string logits) {
    trace.logits = std::move(logits_);
    trace.probabilities = half_array(std::move(probabilities_));
    trace.predictions = half_array(std::move(predictions_));
    trace.prediction_depth = 1;
    trace.metadata = {{"logits", std::move(logits)}, {"predictions", noise_.description()}};
  }

 private:
  void add_logits(id_view<expert_id> ids, std::span<std::int64_t> logits) {
    auto least = logits[index_of(ids[0])] + 1;
    for (const auto id : ids) {
      auto& step = logits[index_of(id)];
      step = least = std::min(step, least - 1);
    }
    for (std::size_t e = 0; e < logits.size(); ++e) {
      if (!routed_[static_cast<expert_id>(e)]) logits[e] = std::min(logits[e], least - 1);
      logits_.push_back(static_cast<float>(logits[e]) * 0x1p-18F);  // exact
    }
  }

  void add_probabilities(id_view<expert_id> ids, std::span<const std::uint64_t> masses,
                         std::uint64_t total) {
    const auto begin = probabilities_.size();
    for (const auto m : masses) probabilities_.push_back(float_to_half(share_of(m, total)));
    const auto row = std::span(probabilities_).subspan(begin);
    // Non-negative halves have the order of their bit patterns.
    std::uint16_t least = 0;
    for (const auto id : ids) {
      auto& half = row[index_of(id)];
      half = least = std::max<std::uint16_t>(half, 1);
    }
    for (std::size_t e = 0; e < row.size(); ++e)
      if (!routed_[static_cast<expert_id>(e)])
        row[e] = std::min(row[e], static_cast<std::uint16_t>(least - 1));
  }

  std::size_t layers_;
  noisy_predictions noise_;
  per_expert<bool> routed_;  // [E]
  std::vector<float> logits_;
  std::vector<std::uint16_t> probabilities_;
  std::vector<std::uint16_t> predictions_;
};

}  // namespace detail
}  // namespace hotset
