// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Configuration of a synthetic routing trace.

#include <cstdint>
#include <optional>
#include <string>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"

namespace hotset {

/// Kind of noise in predictions.
enum class noise_kind : std::uint8_t {
  exchange,  ///< random experts exchange their probabilities, regardless of their difference
  gaussian   ///< added to every logit: similar experts are confused first
};

struct synthetic_config {
  std::int32_t layers = 4;
  std::int32_t experts = 32;
  std::int32_t top_k = 4;
  std::uint32_t sequences = 1;  ///< one after the other
  std::uint32_t prefill = 0;    ///< prompt tokens of each sequence, in one step
  std::uint32_t tokens = 256;   ///< decoded tokens of each sequence, one step each
  /// Tokens of each such step; diffusion routes all of them again in every step.
  std::uint32_t positions = 1;
  double zipf = 1.0;        ///< popularity of the r-th expert ~ 1 / r^zipf; 0: uniform
  double stickiness = 0.0;  ///< chance that a rank repeats the previous token's expert
  /// Chance that a position keeps its experts of a layer in the next step.
  double position_stickiness = 0;
  /// Token-to-token correlation of logits that decide the routing; nothing: popularity and stickiness decide.
  std::optional<double> autoregression = std::nullopt;
  std::uint32_t phase_length = 0;  ///< tokens after which the popular experts change; 0: never
  bool weights = true;
  bool scores = false;  ///< also logits, probabilities and predictions
  /// Chance that an expert's prediction is another's, or the standard deviation of gaussian noise.
  double predictor_noise = 0.0;
  noise_kind predictor_noise_kind = noise_kind::exchange;
  std::uint64_t expert_bytes = 1;
  std::uint64_t seed = 1;

  static constexpr double most_gaussian_noise = 16;

  [[nodiscard]] validation validate() const {
    if (auto bad = geometry{layers, experts, top_k, 1, {expert_bytes}, {}}.validate()) return bad;
    if (experts > (1 << 20))
      return error{"experts = " + std::to_string(experts) + ", accepted: 1..1048576"};
    if (positions < 1) return error{"positions = 0, accepted: 1 or more"};
    if (auto bad = validate_numbers()) return bad;
    return validate_rows();
  }

 private:
  [[nodiscard]] validation validate_numbers() const {
    const bool gaussian = predictor_noise_kind == noise_kind::gaussian;
    constexpr double below_1 = 0x1.fffffffffffffp-1;
    // With autoregression the logits decide, so stickiness must be 0.
    const double sticky = autoregression ? 0 : 1;
    const char* const accepted = autoregression ? "0 with autoregression" : "0..1";
    struct setting {
      const char* name;
      double value;
      double most;
      const char* accepted;
    };
    for (const auto& n :
         {setting{"zipf", zipf, 8, "0..8"},
          {"stickiness", stickiness, sticky, accepted},
          {"position_stickiness", position_stickiness, sticky, accepted},
          {"predictor_noise", predictor_noise, gaussian ? most_gaussian_noise : 1,
           gaussian ? "0..16 (gaussian)" : "0..1"},
          {"autoregression", autoregression.value_or(0), below_1, "0 or more, below 1"}})
      if (!(n.value >= 0 && n.value <= n.most))
        return error{std::string(n.name) + " = " + std::to_string(n.value) +
                     ", accepted: " + n.accepted};
    return std::nullopt;
  }

  [[nodiscard]] validation validate_rows() const {
    constexpr auto most = std::uint64_t{1} << 31U;
    const auto rows =
        prefill + std::uint64_t{positions} * tokens;  // rows of a sequence, below 2^64
    if (sequences > 0 && rows > 0 && rows <= most / sequences) return std::nullopt;
    return error{"sequences x (prefill + positions x tokens) = " + std::to_string(sequences) +
                 " x (" + std::to_string(prefill) + " + " + std::to_string(positions) + " x " +
                 std::to_string(tokens) + "), accepted: 1..2147483648"};
  }
};

}  // namespace hotset
