// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/studies/expert_scores.hpp"

#include <algorithm>
#include <cstddef>

#include "tiny_moe/model/engine.hpp"
#include "tiny_moe/model/expert_provider.hpp"

namespace tiny_moe {
namespace {

/// Full residency that counts the routing.
class scoring_experts final : public expert_provider {
 public:
  explicit scoring_experts(const model& weights) : shape_(weights.config()), resident_(weights) {
    scores_.token.resize(shape_.layers * shape_.experts);
    scores_.gate.resize(scores_.token.size());
  }
  void run(const visit_inputs& visit, visit_compute& compute) override {
    const auto first = index_of(visit.layer) * shape_.experts;
    for (std::size_t i = 0; i < visit.ids.size(); ++i) {
      const auto expert = static_cast<std::size_t>(visit.ids[i]);
      scores_.token[first + expert] += 1;
      scores_.gate[first + expert] +=
          static_cast<double>(visit.probabilities[i / visit.top_k * visit.experts + expert]);
    }
    if (visit.layer == 0) tokens_ += visit.tokens;
    resident_.run(visit, compute);
  }
  [[nodiscard]] expert_scores scores() const {
    auto out = scores_;
    const auto tokens = static_cast<double>(tokens_);
    for (auto& s : out.token) s /= tokens * static_cast<double>(shape_.top_k);
    for (auto& s : out.gate) s /= tokens;
    return out;
  }

 private:
  model_config shape_;
  resident_experts resident_;
  expert_scores scores_;
  std::size_t tokens_ = 0;
};

}  // namespace

expert_scores score_experts(const model& weights, std::span<const std::uint8_t> text,
                            std::size_t window) {
  scoring_experts counted(weights);
  engine decoder(weights, counted, {.max_positions = window});
  for (std::size_t at = 0; at < text.size(); at += window) {
    decoder.reset();
    (void)decoder.forward(text.subspan(at, std::min(window, text.size() - at)));
  }
  return counted.scores();
}

}  // namespace tiny_moe
