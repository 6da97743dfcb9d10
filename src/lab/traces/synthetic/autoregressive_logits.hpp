// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Router logits correlated from token to token, made from a seed: equal on every machine.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/numbers/splitmix64.hpp"
#include "lab/traces/synthetic/integer_math.hpp"
#include "lab/traces/synthetic/normal_draws.hpp"
#include "lab/traces/synthetic/synthetic_config.hpp"

namespace hotset {
namespace detail {

/// A stationary process AR(1) for every layer and expert: z' = rho z + sqrt(1 - rho^2) e, each e a normal draw.
///
/// The logit is z - zipf ln(rank), ranks by popularity from 1. Without a previous token, z is a draw itself: it
/// always has mean 0 and variance 1, and its correlation over n tokens is rho^n.
/// Units: z in steps of 2^-24, within +-16; logits in steps of 2^-18, within +-56: floats hold them, and 2^21 steps
/// below, exactly. Zipf is cut to steps of 2^-16, rho to 2^-30.
class autoregressive_logits {
 public:
  static constexpr std::int64_t most = std::int64_t{56} << 18U;

  /// Pre: the configuration is valid and has an autoregression.
  explicit autoregressive_logits(const synthetic_config& config)
      : draws_(splitmix64(~config.seed).next() ^ 4U),
        kept_(static_cast<std::int64_t>(config.autoregression.value_or(0) * 0x1p30)),
        fresh_(static_cast<std::int64_t>(
            integer_sqrt((std::uint64_t{1} << 60U) - static_cast<std::uint64_t>(kept_ * kept_)))),
        behind_(static_cast<std::size_t>(config.experts)),
        row_(behind_.size()),
        states_(behind_.size() * static_cast<std::size_t>(config.layers)) {
    const auto zipf = static_cast<std::int64_t>(config.zipf * 65536.0);
    for (std::size_t rank = 0; rank < behind_.size(); ++rank)
      behind_[rank] = (zipf * ln_q18(rank + 1)) >> 16U;
  }

  /// Logits of the next token in a layer. `popular`: all experts, most popular first. `follows`: there is a previous
  /// token. The caller may change the result; the next call overwrites it.
  [[nodiscard]] std::span<std::int64_t> next(std::size_t layer, id_view<expert_id> popular,
                                             bool follows) {
    const auto states = std::span(states_).subspan(layer * row_.size(), row_.size());
    for (std::size_t e = 0; e < row_.size(); ++e) {
      states[e] = follows ? after(states[e]) : static_cast<std::int32_t>(draws_.next());
      row_[e] = product_q18(factor_q24(1), states[e]);
    }
    for (std::size_t rank = 0; rank < popular.size(); ++rank) {
      auto& logit = row_[index_of(popular[rank])];
      logit = std::clamp(logit - behind_[rank], -most, most);
    }
    return row_;
  }

 private:
  /// The limit bounds the products; it is reached only for rho very close to 1.
  std::int32_t after(std::int64_t state) noexcept {
    constexpr std::int64_t limit = std::int64_t{16} << 24U;
    const auto sum = kept_ * state + fresh_ * draws_.next() + (std::int64_t{1} << 29U);
    return static_cast<std::int32_t>(std::clamp(sum >> 30U, -limit, limit));
  }

  normal_draws draws_;
  std::int64_t kept_;                 // rho, 30 fractional bits
  std::int64_t fresh_;                // sqrt(1 - rho^2), 30 fractional bits
  std::vector<std::int64_t> behind_;  // [E] by popularity: zipf ln(rank)
  std::vector<std::int64_t> row_;     // [E]
  std::vector<std::int32_t> states_;  // [L][E]
};

}  // namespace detail
}  // namespace hotset
