// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/studies/quality.hpp"

#include <cmath>

#include <fmt/format.h>

#include "tiny_moe/model/engine.hpp"

namespace tiny_moe {

hotset::validation quality_config::validate(std::size_t max_positions) const {
  const auto refuse = [](const char* name, std::size_t value, std::size_t least, std::size_t most) {
    return hotset::error{
        fmt::format("quality {} = {}, accepted: {}..{}", name, value, least, most)};
  };
  if (window < 1 || window > max_positions) return refuse("window", window, 1, max_positions);
  if (prompt > window) return refuse("prompt", prompt, 0, window);
  if (stride > window) return refuse("stride", stride, 0, window);
  return std::nullopt;
}

double bits_of(std::span<const float> logits, std::uint8_t byte) noexcept {
  const double top = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - top);
  constexpr double log2_e = 1.4426950408889634;
  return std::log2(sum) - (static_cast<double>(logits[byte]) - top) * log2_e;
}

quality measure_quality(const model& weights, expert_provider& experts,
                        std::span<const std::uint8_t> text, const quality_config& config) {
  hotset::require_valid(config.validate(weights.config().max_positions));
  if (text.size() < 2) {
    throw hotset::invalid_config(
        fmt::format("quality of a text of {} bytes, accepted: 2 or more", text.size()));
  }
  engine decoder(weights, experts,
                 {.max_positions = config.window, .max_tokens = config.prompt_bytes()});
  return measure_windows(decoder, text, config);
}

double bits_per_byte(const model& weights, expert_provider& experts,
                     std::span<const std::uint8_t> text, const quality_config& config) {
  return measure_quality(weights, experts, text, config).bits_per_byte();
}

}  // namespace tiny_moe
