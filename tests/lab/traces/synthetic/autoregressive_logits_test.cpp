// SPDX-License-Identifier: Apache-2.0
#include "lab/traces/synthetic/autoregressive_logits.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace autoregressive_logits_test {
namespace {
using namespace hotset;
using detail::autoregressive_logits;

constexpr std::uint64_t seed = 11;

normal_draws stream() { return normal_draws(splitmix64(~seed).next() ^ 4U); }

std::vector<expert_id> in_order(std::int32_t experts) {
  const auto all = each<expert_id>(experts);
  return {all.begin(), all.end()};
}

synthetic_config flat(double correlation, std::int32_t experts, std::int32_t layers = 1) {
  return {.layers = layers,
          .experts = experts,
          .top_k = 1,
          .zipf = 0,
          .autoregression = correlation,
          .seed = seed};
}

std::int64_t rounded_down(std::int64_t n, std::int64_t by) {
  const auto quotient = n / by;
  return n % by < 0 ? quotient - 1 : quotient;
}

// 0.6 and 0.8 of 2^30, cut; a step of the logits is 64 of the draws.
TEST(autoregressive_logits, three_tokens_by_hand) {
  auto draws = stream();
  autoregressive_logits logits(flat(0.6, 2));
  const auto popular = in_order(2);
  std::vector<std::int64_t> states(2);
  for (int token = 0; token < 3; ++token) {
    const auto row = logits.next(0, popular, token > 0);
    for (std::size_t e = 0; e < 2; ++e) {
      const auto drawn = draws.next();
      states[e] =
          token == 0 ? drawn
                     : rounded_down(644245094 * states[e] + 858993459 * drawn + (1 << 29), 1 << 30);
      EXPECT_EQ(row[e], rounded_down(states[e] + 32, 64)) << token;
    }
  }
}

TEST(autoregressive_logits, are_biased_by_the_logarithm_of_the_rank) {
  auto config = flat(0.5, 3);
  autoregressive_logits plain(config);
  config.zipf = 1;
  autoregressive_logits biased(config);
  const std::vector<std::int32_t> popular{2, 0, 1};
  const auto from = plain.next(0, popular, false);
  const auto row = biased.next(0, popular, false);
  // ln 2 and ln 3 of 2^18, cut.
  const std::vector<std::int64_t> bias{-181704, -287994, 0};
  for (std::size_t e = 0; e < 3; ++e) EXPECT_EQ(row[e] - from[e], bias[e]);
}

TEST(autoregressive_logits, end_at_the_limit_of_exact_floats) {
  auto config = flat(0.5, 1 << 12);
  config.zipf = 8;
  autoregressive_logits logits(config);
  const auto popular = in_order(1 << 12);
  for (int token = 0; token < 50; ++token) {
    const auto row = logits.next(0, popular, token > 0);
    EXPECT_EQ(*std::ranges::min_element(row), -autoregressive_logits::most);
    EXPECT_LE(*std::ranges::max_element(row), autoregressive_logits::most);
  }
  constexpr auto lowest = -autoregressive_logits::most - (1 << 21);
  EXPECT_EQ(static_cast<std::int64_t>(static_cast<float>(lowest)), lowest);
  EXPECT_NE(static_cast<std::int64_t>(static_cast<float>(lowest - 1)), lowest - 1);
}

/// A layer's next row, in standard deviations.
std::vector<double> next_row(autoregressive_logits& logits, std::size_t experts, bool follows,
                             std::size_t layer = 0) {
  std::vector<double> out;
  for (const auto step : logits.next(layer, in_order(static_cast<std::int32_t>(experts)), follows))
    out.push_back(static_cast<double>(step) * 0x1p-18);
  return out;
}
std::vector<std::vector<double>> walked(autoregressive_logits& logits, std::size_t experts,
                                        std::size_t tokens) {
  std::vector<std::vector<double>> out;
  for (std::size_t t = 0; t < tokens; ++t) out.push_back(next_row(logits, experts, t > 0));
  return out;
}

/// Correlation of tokens at distance `apart`; the mean is 0.
double correlation(const std::vector<std::vector<double>>& rows, std::size_t apart) {
  double both = 0;
  double squares = 0;
  for (std::size_t t = apart; t < rows.size(); ++t)
    for (std::size_t e = 0; e < rows[t].size(); ++e) {
      both += rows[t][e] * rows[t - apart][e];
      squares += rows[t][e] * rows[t][e];
    }
  return both / squares;
}

TEST(autoregressive_logits, remember_by_a_power_for_every_token) {
  for (const double rho : {0.0, 0.3, 0.9, 0.99}) {
    autoregressive_logits logits(flat(rho, 64));
    const auto rows = walked(logits, 64, 4000);
    for (const std::size_t apart : {1U, 2U, 5U})
      EXPECT_NEAR(correlation(rows, apart), std::pow(rho, apart), 0.01) << rho << ' ' << apart;
  }
}

// A walk that starts at 0 would have to grow first: at rho = 0.99 for hundreds of tokens.
TEST(autoregressive_logits, are_spread_alike_from_the_first_token_on) {
  constexpr std::size_t experts = 1U << 14U;
  for (const double rho : {0.0, 0.9, 0.99}) {
    autoregressive_logits logits(flat(rho, experts));
    for (const auto& row : walked(logits, experts, 30)) {
      double mean = 0;
      double variance = 0;
      for (const double z : row) {
        mean += z / experts;
        variance += z * z / experts;
      }
      ASSERT_NEAR(mean, 0, 5 * std::sqrt(1.0 / experts)) << rho;
      ASSERT_NEAR(variance, 1, 5 * std::sqrt(2.0 / experts)) << rho;
    }
  }
}

TEST(autoregressive_logits, forget_at_the_start_of_a_sequence) {
  autoregressive_logits logits(flat(0.99, 1 << 14));
  const auto first = next_row(logits, 1 << 14, false);
  const auto second = next_row(logits, 1 << 14, true);
  const auto fresh = next_row(logits, 1 << 14, false);
  EXPECT_NEAR(correlation({first, second}, 1), 0.99, 0.01);
  EXPECT_NEAR(correlation({second, fresh}, 1), 0, 0.04);
}

TEST(autoregressive_logits, layers_have_processes_of_their_own) {
  constexpr std::int32_t experts = 1 << 13;
  autoregressive_logits logits(flat(0.95, experts, 2));
  std::vector<std::vector<double>> rows;
  for (const bool follows : {false, true})
    for (const std::size_t layer : {0U, 1U})
      rows.push_back(next_row(logits, experts, follows, layer));
  EXPECT_NEAR(correlation({rows[0], rows[1]}, 1), 0, 0.06);
  EXPECT_NEAR(correlation({rows[0], rows[2]}, 1), 0.95, 0.02);
  EXPECT_NEAR(correlation({rows[1], rows[3]}, 1), 0.95, 0.02);
}

// The largest double below 1: nothing overflows, and almost nothing changes.
TEST(autoregressive_logits, take_every_correlation_below_one) {
  autoregressive_logits logits(flat(std::nextafter(1.0, 0.0), 64));
  const auto rows = walked(logits, 64, 200);
  for (std::size_t e = 0; e < 64; ++e) EXPECT_NEAR(rows.front()[e], rows.back()[e], 0.01);
}

}  // namespace
}  // namespace autoregressive_logits_test
