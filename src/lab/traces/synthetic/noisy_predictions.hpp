// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Predictions of router probabilities with a chosen amount of noise.

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hotset/core/numbers/splitmix64.hpp"
#include "hotset/trace/half_array.hpp"
#include "lab/traces/synthetic/integer_math.hpp"
#include "lab/traces/synthetic/normal_draws.hpp"
#include "lab/traces/synthetic/synthetic_config.hpp"

namespace hotset {
namespace detail {

/// The shortest digits that give the number back; to_string would depend on the locale.
[[nodiscard]] inline std::string shortest(double value) {
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

/// Noisy predictions of a row of router scores, with random streams of their own.
///
/// exchange: each expert is drawn with the given chance, the drawn ones are put in random order, and each takes the
/// probability of the next one; the last takes that of the first.
/// gaussian: the softmax of the logits plus sigma times a normal draw each; 0: as recorded.
/// The number of draws does not depend on the noise: more noise moves the same experts further.
class noisy_predictions {
 public:
  explicit noisy_predictions(const synthetic_config& config)
      : kind_(config.predictor_noise_kind),
        noise_(config.predictor_noise),
        exchanges_(splitmix64(~config.seed).next() ^ 1U),
        draws_(splitmix64(~config.seed).next() ^ 3U) {}

  /// Shape: [E] each. `logits` are multiples of 2^-18.
  void predict(std::span<const float> logits, std::span<const std::uint16_t> probabilities,
               std::span<std::uint16_t> predicted) {
    if (kind_ == noise_kind::gaussian && noise_ > 0) return add_noise(logits, predicted);
    std::ranges::copy(probabilities, predicted.begin());
    if (kind_ == noise_kind::exchange) exchange(probabilities, predicted);
  }

  [[nodiscard]] std::string description() const {
    return std::string("probabilities of the next layer; ") +
           (kind_ == noise_kind::exchange ? "chance of an expert to have another one's: "
                                          : "standard deviation of what its logits are off: ") +
           shortest(noise_);
  }

 private:
  void exchange(std::span<const std::uint16_t> real, std::span<std::uint16_t> predicted) {
    const auto threshold = chance_q53(noise_);
    drawn_.clear();
    for (std::size_t e = 0; e < predicted.size(); ++e) {
      const bool is_drawn = (exchanges_.next() >> 11U) < threshold;
      const auto place = exchanges_.next();
      if (is_drawn) drawn_.emplace_back(place, e);
    }
    std::ranges::sort(drawn_);
    for (std::size_t i = 0; i < drawn_.size(); ++i)
      predicted[drawn_[i].second] = real[drawn_[(i + 1) % drawn_.size()].second];
  }

  void add_noise(std::span<const float> logits, std::span<std::uint16_t> predicted) {
    const auto sigma = factor_q24(noise_);
    steps_.resize(logits.size());
    masses_.resize(logits.size());
    for (std::size_t e = 0; e < logits.size(); ++e)
      steps_[e] = static_cast<std::int64_t>(logits[e] * 0x1p18F) +  // exact
                  product_q18(sigma, draws_.next());
    const auto total = softmax_masses(steps_, masses_);
    for (std::size_t e = 0; e < logits.size(); ++e)
      predicted[e] = float_to_half(share_of(masses_[e], total));
  }

  noise_kind kind_;
  double noise_;
  splitmix64 exchanges_;
  normal_draws draws_;
  std::vector<std::pair<std::uint64_t, std::size_t>> drawn_;
  std::vector<std::int64_t> steps_;    // [E]
  std::vector<std::uint64_t> masses_;  // [E]
};

}  // namespace detail
}  // namespace hotset
