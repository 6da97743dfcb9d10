// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a synthetic routing trace is like.

#include <cstdint>
#include <optional>
#include <string>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"

namespace hotset {

/// How predictions are made worse than what they predict.
enum class noise_kind : std::uint8_t {
  exchange,  ///< some experts exchange their probabilities, however far apart they are
  gaussian   ///< added to every logit: what is nearly alike is confused first
};

struct synthetic_config {
  std::int32_t layers = 4;
  std::int32_t experts = 32;
  std::int32_t top_k = 4;
  std::uint32_t sequences = 1;  ///< one after the other
  std::uint32_t prefill = 0;    ///< prompt tokens of each sequence: one step
  std::uint32_t tokens = 256;   ///< decoded tokens of each sequence: a step each
  std::uint32_t positions = 1;  ///< tokens of each such step; diffusion routes all it has anew
  double zipf = 1.0;            ///< popularity of the r-th expert ~ 1 / r^zipf; 0: uniform
  double stickiness = 0.0;      ///< chance that a rank repeats the previous token's expert
  /// Chance that a position keeps its experts of a layer for a step.
  double position_stickiness = 0;
  /// Correlation, token to token, of logits that decide the routing; nothing: popularity and stickiness do.
  std::optional<double> autoregression = std::nullopt;
  double logit_spread = 1.0;       ///< standard deviation of those logits
  std::uint32_t phase_length = 0;  ///< tokens after which the popular experts change; 0: never
  bool weights = true;
  bool scores = false;       ///< logits, probabilities and predictions as well
  double routed_mass = 0.5;  ///< least share of the probability that the routed experts hold
  /// Chance that the prediction of an expert is another one's, or the standard deviation of gaussian noise.
  double predictor_noise = 0.0;
  noise_kind predictor_noise_kind = noise_kind::exchange;
  std::uint64_t expert_bytes = 1;
  std::uint64_t seed = 1;

  static constexpr double most_gaussian_noise = 16;
  static constexpr double most_logit_spread = 8;

  [[nodiscard]] validation validate() const {
    if (auto bad = geometry{layers, experts, top_k, 1, {expert_bytes}, {}}.validate()) return bad;
    if (experts > (1 << 20))
      return error{"experts = " + std::to_string(experts) + ", accepted: 1..1048576"};
    if (positions < 1) return error{"positions = 0, accepted: 1 or more"};
    if (auto bad = validate_numbers()) return bad;
    return validate_rows();
  }

 private:
  /// What decides the routing one way has no meaning in the other.
  [[nodiscard]] validation validate_numbers() const {
    const bool gaussian = predictor_noise_kind == noise_kind::gaussian;
    const bool drawn = !autoregression;
    const double correlation = autoregression.value_or(0);
    const auto within = [](double value, double most) { return value >= 0 && value <= most; };
    struct setting {
      const char* name;
      double value;
      bool is_accepted;
      const char* accepted;
    };
    for (const auto& n :
         {setting{"zipf", zipf, within(zipf, 8), "0..8"},
          setting{"stickiness", stickiness, within(stickiness, 1), "0..1"},
          setting{"position_stickiness", position_stickiness, within(position_stickiness, 1),
                  "0..1"},
          setting{"routed_mass", routed_mass, within(routed_mass, 0.99), "0..0.99"},
          setting{"predictor_noise", predictor_noise,
                  within(predictor_noise, gaussian ? most_gaussian_noise : 1),
                  gaussian ? "0..16 (gaussian)" : "0..1"},
          setting{"autoregression", correlation, correlation >= 0 && correlation < 1,
                  "0 or more, below 1"},
          setting{"logit_spread", logit_spread,
                  drawn || (logit_spread > 0 && within(logit_spread, most_logit_spread)),
                  "more than 0, at most 8"},
          setting{"logit_spread", logit_spread, !drawn || logit_spread == 1,
                  "1 without autoregression"},
          setting{"stickiness", stickiness, drawn || stickiness == 0, "0 with autoregression"},
          setting{"position_stickiness", position_stickiness, drawn || position_stickiness == 0,
                  "0 with autoregression"},
          setting{"routed_mass", routed_mass, drawn || routed_mass == 0.5,
                  "0.5 (the default) with autoregression"}})
      if (!n.is_accepted)
        return error{std::string(n.name) + " = " + std::to_string(n.value) +
                     ", accepted: " + n.accepted};
    return std::nullopt;
  }

  [[nodiscard]] validation validate_rows() const {
    constexpr auto most = std::uint64_t{1} << 31U;
    const auto rows = prefill + std::uint64_t{positions} * tokens;  // of a sequence, below 2^64
    if (sequences > 0 && rows > 0 && rows <= most / sequences) return std::nullopt;
    return error{"sequences x (prefill + positions x tokens) = " + std::to_string(sequences) +
                 " x (" + std::to_string(prefill) + " + " + std::to_string(positions) + " x " +
                 std::to_string(tokens) + "), accepted: 1..2147483648"};
  }
};

}  // namespace hotset
