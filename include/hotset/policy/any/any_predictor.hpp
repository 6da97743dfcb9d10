// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Holds a predictor chosen at run time; prefetchers that use scores read its forecasts.
///
/// Rule: the held predictor's.
/// Source: see any_eviction_policy.
/// Deviations: none.
/// Exact: yes (never changes what is computed).
/// Cost: the held predictor's cost and one virtual call each.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hotset/policy/any/any_policy.hpp"
#include "hotset/policy/predictor.hpp"

namespace hotset {

namespace detail {

/// Virtual interface of a held predictor.
struct held_predictor : held_policy<predictor_traits> {
  template <class P>
  struct model;

  using held_policy::held_policy;
  virtual forecast expect(const routing_view& view, std::span<const float> recorded,
                          std::int32_t ahead) noexcept = 0;
  virtual void on_sequence_end(sequence_id sequence) noexcept = 0;
};

template <class P>
struct held_predictor::model final : held_predictor {
  explicit model(P given) : held_predictor(P::name, P::traits), policy(std::move(given)) {}
  forecast expect(const routing_view& view, std::span<const float> recorded,
                  std::int32_t ahead) noexcept override {
    return policy.expect(view, recorded, ahead);
  }
  void on_sequence_end([[maybe_unused]] sequence_id sequence) noexcept override {
    if constexpr (P::traits.wants_sequence_ends) policy.on_sequence_end(sequence);
  }
  P policy;
};

}  // namespace detail

/// Move-only. A forecast is valid until the next call. Threads: compatible.
class any_predictor : public detail::policy_holder<detail::held_predictor> {
 public:
  struct config {
    std::function<result<any_predictor>(const geometry&, const config&)> factory{};
    std::function<validation(std::int32_t depth)> inner_validation{};
    std::string name{};
    predictor_traits traits{};  ///< traits of the predictor that will be held
    std::int32_t depth = 1;     ///< number of layers ahead
    // The engine sets these members if the traits say needs_routers, and the first one if they say needs_hidden. The
    // predictor's own config keeps its value for a member that is not set.
    std::int32_t d_model = 0;
    std::vector<std::span<const float>> routers{};
    /// Router biases, for predictors that use them; may stay empty.
    std::vector<std::span<const float>> biases{};
    /// [vocabulary, d_model], the input embeddings, if the traits say takes_embeddings; may stay empty.
    std::span<const float> embeddings{};

    /// Checks all that does not depend on a geometry.
    [[nodiscard]] validation validate() const {
      if (!factory) return error{"any_predictor factory = none, accepted: a factory"};
      return inner_validation(depth);
    }
  };

  /// Returns a config that builds P with these options. `depth` of the config replaces that of the options.
  template <predictor P>
  [[nodiscard]] static config holding(typename P::config options = {}) {
    config out;
    out.name = P::name;
    out.traits = P::traits;
    if constexpr (requires { options.needs(); }) out.traits = options.needs();
    out.depth = options.depth;
    out.inner_validation = [options](std::int32_t depth) {
      auto asked = options;
      asked.depth = depth;
      return asked.validate();
    };
    out.factory = [options = std::move(options)](const geometry& shape,
                                                 const config& chosen) -> result<any_predictor> {
      auto asked = options;
      asked.depth = chosen.depth;
      if constexpr (requires { asked.d_model; })
        if (chosen.d_model != 0) asked.d_model = chosen.d_model;
      if constexpr (requires { asked.routers; })
        if (!chosen.routers.empty()) asked.routers = chosen.routers;
      if constexpr (requires { asked.biases; })
        if (!chosen.biases.empty()) asked.biases = chosen.biases;
      if constexpr (requires { asked.embeddings, asked.embedding_width; }) {
        if (!chosen.embeddings.empty()) {
          asked.embeddings = chosen.embeddings;
          asked.embedding_width = chosen.d_model;
        }
      }
      auto made = P::create(shape, asked);
      if (!made) return made.error();
      return any_predictor(std::make_unique<detail::held_predictor::model<P>>(*std::move(made)));
    };
    return out;
  }

  /// Errors: those of the held predictor's configuration.
  static result<any_predictor> create(const geometry& shape, const config& options) {
    if (auto bad = options.validate()) return *std::move(bad);
    return options.factory(shape, options);
  }

  /// Calls `expect` of the held predictor, see the predictor concept.
  [[nodiscard]] forecast expect(const routing_view& view, std::span<const float> recorded = {},
                                std::int32_t ahead = 0) noexcept {
    return held().expect(view, recorded, ahead);
  }
  /// Calls `on_sequence_end` if the held predictor has it.
  void on_sequence_end(sequence_id sequence) noexcept { held().on_sequence_end(sequence); }

 private:
  explicit any_predictor(std::unique_ptr<detail::held_predictor> chosen)
      : policy_holder(std::move(chosen)) {}
};

/// Returns the config with another number of layers ahead.
[[nodiscard]] inline any_predictor::config with_depth(any_predictor::config options,
                                                      std::int32_t depth) {
  options.depth = depth;
  return options;
}

}  // namespace hotset
