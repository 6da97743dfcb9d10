// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The three ways of next_layer_gate, each a predictor with a name.
///
/// | `--predictor` | class | goes by |
/// |---|---|---|
/// | `recorded` | `recorded_scores` | what a trace recorded |
/// | `current-gate` | `current_gate` | the running layer's own scores |
/// | `next-router` | `next_router` | the next layers' routers on this layer's hidden state |

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "hotset/core/router_scores.hpp"
#include "hotset/policy/predictor.hpp"
#include "hotset/predict/next_layer_gate.hpp"

namespace hotset {

/// What the running visit shows, read in one of three ways.
template <gate_source Source>
class gate_predictor {
  static constexpr bool by_routers = Source == gate_source::next_router;

 public:
  struct config {
    std::int32_t depth = 1;                         ///< layers ahead
    std::int32_t d_model = 0;                       ///< of next_router: width of the hidden state
    std::vector<std::span<const float>> routers{};  ///< of next_router: as next_layer_gate's
    router_scores::config scores{};                 ///< not of recorded: as next_layer_gate's
    std::vector<std::span<const float>> biases{};   ///< of next_router: as next_layer_gate's

    /// Parameters by name, as in `current-gate:scores=sigmoid`; `recorded` has none.
    template <class From>
    static config read([[maybe_unused]] From& from) {
      config out;
      if constexpr (Source != gate_source::recorded) out.scores = router_scores::config::read(from);
      return out;
    }
    /// Routers are an engine's, and come later.
    [[nodiscard]] validation validate() const {
      return next_layer_gate::config{
          .source = gate_source::recorded, .depth = depth, .scores = scores}
          .validate();
    }
  };
  static constexpr std::string_view name = by_routers                        ? "next-router"
                                           : Source == gate_source::recorded ? "recorded"
                                                                             : "current-gate";
  static constexpr predictor_traits traits{.needs_recorded = Source == gate_source::recorded,
                                           .needs_scores = Source == gate_source::current_gate,
                                           .needs_routers = by_routers};

  static result<gate_predictor> create(const geometry& shape, const config& options) {
    next_layer_gate::config gate{Source,          options.depth,  options.d_model,
                                 options.routers, options.scores, options.biases};
    if (auto bad = gate.validate(shape)) return *std::move(bad);
    return gate_predictor(next_layer_gate(shape, std::move(gate)));
  }
  [[nodiscard]] forecast expect(const routing_view& view, std::span<const float> recorded,
                                std::int32_t ahead) noexcept {
    if constexpr (Source == gate_source::recorded)
      return gate_.expect(view, recorded, ahead);
    else
      return gate_.expect(view);
  }

 private:
  explicit gate_predictor(next_layer_gate gate) : gate_(std::move(gate)) {}
  next_layer_gate gate_;
};

/// Predictions that the trace or the engine recorded.
using recorded_scores = gate_predictor<gate_source::recorded>;
/// The gate scores of the running layer, taken for the next layers'.
using current_gate = gate_predictor<gate_source::current_gate>;
/// The routers of the next layers, on the running hidden state.
using next_router = gate_predictor<gate_source::next_router>;

static_assert(predictor<recorded_scores> && predictor<current_gate> && predictor<next_router>);

}  // namespace hotset
