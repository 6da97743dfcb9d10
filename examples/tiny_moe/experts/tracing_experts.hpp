// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Records the routing while another provider serves it.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "hotset/trace/routing_trace.hpp"
#include "hotset/trace/trace_recorder.hpp"
#include "tiny_moe/model/expert_provider.hpp"
#include "tiny_moe/model/model.hpp"

namespace tiny_moe {

/// Optional arrays; ids and weights are always recorded.
struct tracing_config {
  std::size_t capacity = 0;  ///< tokens of all passes
  bool logits = false;
  bool probabilities = false;
  bool hidden = false;       ///< input of the router and the experts
  bool predictions = false;  ///< the next layer's router applied to hidden, as probabilities
  std::string name = "tiny-moe";
};

/// Every token of the recorded passes is a row of the trace, and every pass is a step.
class tracing_experts final : public expert_provider {
 public:
  /// Pre: `weights` and `inner` outlive the provider. Errors: hotset::invalid_config.
  tracing_experts(const model& weights, expert_provider& inner, const tracing_config& config);

  /// Assigns further tokens to this sequence.
  void begin_sequence(std::uint32_t sequence) noexcept { sequence_ = sequence; }

  /// Errors: std::length_error if the pass does not fit.
  void on_step(const step_inputs& step) override;
  void on_sequence_end(std::uint32_t sequence) noexcept override {
    inner_.on_sequence_end(sequence);
  }
  void run(const visit_inputs& visit, visit_compute& compute) override;

  /// Returns the recorded trace and starts a new one.
  [[nodiscard]] hotset::routing_trace take();

 private:
  void predict(const visit_inputs& visit);

  const model& model_;
  expert_provider& inner_;
  hotset::trace_recorder recorder_;
  std::uint32_t sequence_ = 0;
  std::vector<std::uint32_t> sequences_;
  std::vector<float> scores_;               ///< [tokens, experts] of one visit
  std::vector<std::uint16_t> predictions_;  ///< [capacity, layers, experts] halves; may be empty
};

}  // namespace tiny_moe
