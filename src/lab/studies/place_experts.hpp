// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Places the experts of all layers of a model by recorded traffic, and scores placements on other traffic.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/placement/place_by_steps.hpp"
#include "hotset/placement/placement_score.hpp"
#include "hotset/placement/placement_shape.hpp"
#include "hotset/placement/step_loads.hpp"
#include "hotset/trace/routing_trace.hpp"

namespace hotset::lab {

/// Steps of decoding that a server would do.
struct served_steps {
  /// Requests that are decoded at once, drawn from the traces' sequences. 0: the traces' own steps.
  std::int32_t running = 0;
  /// Most steps. The traces' own steps are taken at equal distances.
  std::int32_t steps = 1000;
  /// Draws each few steps from another half of the sequences. A placement by steps that all hold the same requests fits
  /// these too well: later requests differ as the halves do.
  bool halves = true;
};

/// Steps of traces of one model.
class step_sample {
 public:
  /// The traces must outlive the sample. Pre: there is a trace. Errors: usage_error if their models differ.
  step_sample(std::span<const routing_trace* const> traces, const served_steps& how);

  [[nodiscard]] std::size_t steps() const noexcept { return steps_.size(); }
  [[nodiscard]] std::int32_t layers() const noexcept { return model_->layers; }
  [[nodiscard]] std::int32_t experts() const noexcept { return model_->experts; }
  [[nodiscard]] std::size_t top_k() const noexcept {
    return static_cast<std::size_t>(model_->top_k);
  }
  [[nodiscard]] step_loads loads(layer_id layer) const;
  /// Ids of a step's tokens. Shape: [tokens][top_k].
  [[nodiscard]] std::vector<expert_id> ids(std::size_t step, layer_id layer) const;

 private:
  struct token_row {
    const routing_trace* trace;
    std::size_t row;
  };
  using run = std::vector<token_row>;  ///< consecutive tokens of a step or a sequence

  /// Rows of all traces, divided where the value of `by` changes.
  static std::vector<run> divided(std::span<const routing_trace* const> traces,
                                  std::vector<std::uint32_t> routing_trace::*by);
  void draw(std::vector<run> sequences, const served_steps& how);

  const routing_trace* model_;
  std::vector<run> steps_;
};

/// Places each layer with the costs and starts of `how`, and tokens of the sample. `start` [layers] or empty. Reports
/// progress.
[[nodiscard]] std::vector<expert_placement> place_layers(const step_sample& sample,
                                                         const placement_shape& shape,
                                                         const place_config& how,
                                                         std::span<const expert_placement> start,
                                                         unsigned jobs);
/// The placement of engines, even_packing, of each layer.
[[nodiscard]] std::vector<expert_placement> pack_layers(const step_sample& sample,
                                                        const placement_shape& shape);
/// The placement with which engines start, of each layer.
[[nodiscard]] std::vector<expert_placement> layers_in_order(std::int32_t layers,
                                                            const placement_shape& shape);

/// Scores of a placement on some traffic.
struct placed_scores {
  placement_score even;                    ///< loads are shared evenly by replicas
  placement_score hash, near, own_tokens;  ///< by replica_choice
};
[[nodiscard]] placed_scores score_layers(const step_sample& sample, const placement_shape& shape,
                                         std::span<const expert_placement> layers, unsigned jobs);
/// Experts that move, in all layers.
[[nodiscard]] std::int64_t moved_in_layers(const placement_shape& shape,
                                           std::span<const expert_placement> before,
                                           std::span<const expert_placement> after);

}  // namespace hotset::lab
