// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Requirements on a predictor of the experts that the next layers will route.
///
/// | expression | meaning |
/// |---|---|
/// | `typename P::config` | aggregate of parameters with `validate()` and a `depth`: layers ahead |
/// | `P::create(shape, config)` | returns a predictor for a model's geometry, or an error; allocates all memory |
/// | `P::name` | the predictor's name in the field, used by `--predictor` |
/// | `P::traits` | a `predictor_traits` |
/// | `expect(view, recorded, ahead)` | returns a forecast for the next `depth` layers |
/// | `on_sequence_end(sequence)` | the request had its last token; only if the traits say so |
///
/// `expect` is called once for each visit, in routed order. Its forecast is valid until the next call.
/// `recorded` is [tokens, ahead, experts]: predictions from a trace for the layers after the view's; empty otherwise.
/// `expect` is `noexcept`, allocates nothing, and reads no clock.

#include <concepts>
#include <cstdint>
#include <span>
#include <string_view>

#include "hotset/core/error.hpp"
#include "hotset/core/forecast.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/routing_view.hpp"

// clang-format 14 splits compound requirements badly.
// clang-format off
namespace hotset {

/// Traits of a predictor's class.
struct predictor_traits {
  bool needs_recorded = false;  ///< predictions that were recorded in a trace
  bool needs_scores = false;  ///< scores of the running gate: logits or probabilities
  /// The engine's routers (`config::routers`, `config::d_model`) and hidden states.
  bool needs_routers = false;
  bool needs_hidden = false;  ///< hidden states of width `config::d_model`, if that is set
  /// Uses the engine's input embeddings if there are any (`config::embeddings`, `config::embedding_width`).
  bool takes_embeddings = false;
  /// `expect` is also called before a step's first layer, with a view of the layer before_layers.
  bool opens_steps = false;
  bool wants_sequence_ends = false;  ///< has `on_sequence_end`, noexcept
};

template <class P>
concept predictor =
    std::move_constructible<P> &&
    requires(P policy, const routing_view& view, std::span<const float> recorded,
             std::int32_t ahead, const geometry& shape, const typename P::config& config) {
      { P::name } -> std::convertible_to<std::string_view>;
      requires std::same_as<decltype(P::traits), const predictor_traits>;
      { config.validate() } -> std::same_as<validation>;
      { config.depth } -> std::convertible_to<std::int32_t>;
      { P::create(shape, config) } -> std::same_as<result<P>>;
      { policy.expect(view, recorded, ahead) } noexcept -> std::same_as<forecast>;
    } &&
    (!P::traits.needs_routers || requires(typename P::config& config) {
      config.routers;
      config.d_model;
    }) &&
    (!P::traits.needs_hidden || requires(typename P::config& config) { config.d_model; }) &&
    (!P::traits.takes_embeddings || requires(typename P::config& config) {
      config.embeddings;
      config.embedding_width;
    }) &&
    (P::traits.wants_sequence_ends
         ? requires(P& policy, sequence_id sequence) {
             { policy.on_sequence_end(sequence) } noexcept -> std::same_as<void>;
           }
         : !requires { &P::on_sequence_end; });

}  // namespace hotset
