// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Requirements on what says which experts the next layers will route.
///
/// | expression | meaning |
/// |---|---|
/// | `typename P::config` | aggregate of parameters with `validate()` and a `depth`: layers ahead |
/// | `P::create(shape, config)` | built for a model's geometry, or why not; all memory is taken here |
/// | `P::name` | the field's name of it, as in `--predictor` |
/// | `P::traits` | a `predictor_traits` |
/// | `expect(view, recorded, ahead)` | once for each visit, in the order in which they are routed: what the next `depth` layers will route, good until the next call. `recorded` is [tokens, ahead, experts], of the layers after the view's, where a trace recorded predictions; empty otherwise |
///
/// | `on_sequence_end(sequence)` | a request has had its last token; only where the traits say so |
///
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

// clang-format 14 tears compound requirements apart.
// clang-format off
namespace hotset {

/// What is true of a predictor's class.
struct predictor_traits {
  bool needs_recorded = false;  ///< predictions that a trace recorded
  bool needs_scores = false;    ///< the running gate's scores: logits or probabilities
  bool needs_routers = false;   ///< the engine's routers (`config::routers`, `config::d_model`) and hidden states
  bool needs_hidden = false;  ///< hidden states, of the width `config::d_model` where that is told
  /// Goes by the engine's input embeddings where there are some (`config::embeddings`, `config::embedding_width`).
  bool takes_embeddings = false;
  /// It is asked before a step's first layer too, with a view of the layer before_layers.
  bool opens_steps = false;
  bool hears_sequence_ends = false;  ///< has `on_sequence_end`, noexcept
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
    (P::traits.hears_sequence_ends
         ? requires(P& policy, sequence_id sequence) {
             { policy.on_sequence_end(sequence) } noexcept -> std::same_as<void>;
           }
         : !requires { &P::on_sequence_end; });

}  // namespace hotset
