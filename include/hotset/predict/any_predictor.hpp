// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Holds the predictor that was chosen at run time: what prefetchers by score go by.
///
/// Rule: the held predictor's: a gate's scores (next_layer_gate), or what fired together before (co_activation), which
///       learns from each visit before it is asked.
/// Source: the two headers.
/// Deviations: none.
/// Exact: yes (never changes what is computed).
/// Cost: the held predictor's.

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <variant>

#include "hotset/core/error.hpp"
#include "hotset/core/forecast.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/core/status.hpp"
#include "hotset/predict/co_activation.hpp"
#include "hotset/predict/next_layer_gate.hpp"

namespace hotset::inline v0 {

/// A forecast is good until the next call. Threads: compatible.
class any_predictor {
 public:
  struct config {
    next_layer_gate::config gate{};
    std::optional<co_activation::config> table{};  ///< if it is there, it goes instead of the gate
  };

  /// Errors: what the chosen predictor's own configuration says.
  static result<any_predictor> create(const geometry& shape, const config& options) {
    if (!options.table) {
      if (auto bad = options.gate.validate(shape)) return *std::move(bad);
      return any_predictor(next_layer_gate(shape, options.gate));
    }
    auto table = co_activation::create(shape, *options.table);
    if (!table) return table.reason();
    return any_predictor(*std::move(table));
  }

  /// Once for each visit, in the order in which they are routed. `recorded` and `ahead` are for predictions of a trace,
  /// as next_layer_gate takes them; others leave them alone.
  [[nodiscard]] forecast expect(const routing_view& view, std::span<const float> recorded = {},
                                std::int32_t ahead = 0) noexcept {
    if (auto* gate = std::get_if<next_layer_gate>(&held_))
      return gate->source() == gate_source::recorded ? gate->expect(view, recorded, ahead)
                                                     : gate->expect(view);
    auto& table = *std::get_if<co_activation>(&held_);
    if (table.observe(view) != status::ok) return {};
    return table.predict(view);
  }

 private:
  explicit any_predictor(next_layer_gate gate) : held_(std::move(gate)) {}
  explicit any_predictor(co_activation table) : held_(std::move(table)) {}

  std::variant<next_layer_gate, co_activation> held_;
};

/// The same predictor, this many layers ahead.
[[nodiscard]] inline any_predictor::config with_depth(any_predictor::config options,
                                                      std::int32_t depth) {
  options.gate.depth = depth;
  if (options.table) options.table->depth = depth;
  return options;
}
/// True if the chosen predictor is a gate of this source.
[[nodiscard]] inline bool goes_by(const any_predictor::config& options,
                                  gate_source source) noexcept {
  return !options.table && options.gate.source == source;
}

}  // namespace hotset::inline v0
