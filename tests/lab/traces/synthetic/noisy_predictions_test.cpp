// SPDX-License-Identifier: Apache-2.0
#include "lab/traces/synthetic/noisy_predictions.hpp"

#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace noisy_predictions_test {
namespace {
using namespace hotset;
using detail::noisy_predictions;

constexpr std::uint64_t seed = 21;
const std::vector<float> logits{0.5F, -3.25F, 2.0F, 1.75F};
/// Arbitrary values that are not the softmax of the logits.
const std::vector<std::uint16_t> recorded{0x2c00, 0x1c00, 0x3800, 0x3000};

std::vector<std::uint16_t> predicted(double noise, noise_kind kind, int rows = 1) {
  noisy_predictions predictions(
      {.predictor_noise = noise, .predictor_noise_kind = kind, .seed = seed});
  std::vector<std::uint16_t> out(4);
  while (rows-- > 0) predictions.predict(logits, recorded, out);
  return out;
}

TEST(noisy_predictions, without_noise_are_as_recorded) {
  EXPECT_EQ(predicted(0, noise_kind::exchange), recorded);
  EXPECT_EQ(predicted(0, noise_kind::gaussian), recorded);
}

TEST(noisy_predictions, exchanged_are_the_same_in_other_places) {
  for (int rows = 1; rows < 20; ++rows) {
    const auto moved = predicted(1, noise_kind::exchange, rows);
    EXPECT_TRUE(std::ranges::is_permutation(moved, recorded));
    for (std::size_t e = 0; e < 4; ++e) EXPECT_NE(moved[e], recorded[e]);
  }
}

TEST(noisy_predictions, gaussian_are_the_softmax_of_logits_that_are_off) {
  for (const double sigma : {0.25, 1.0, 5.0})
    for (const int rows : {1, 2, 7}) {
      normal_draws draws(splitmix64(~seed).next() ^ 3U);
      std::vector<double> masses(4);
      double total = 0;
      for (int row = 0; row < rows; ++row)
        for (std::size_t e = 0; e < 4; ++e)
          masses[e] =
              std::exp(double{logits[e]} + sigma * static_cast<double>(draws.next()) * 0x1p-24);
      for (const double mass : masses) total += mass;
      const auto made = predicted(sigma, noise_kind::gaussian, rows);
      for (std::size_t e = 0; e < 4; ++e)
        EXPECT_NEAR(double{half_to_float(made[e])}, masses[e] / total,
                    masses[e] / total * 0x1p-10 + 0x1p-24)
            << sigma << ' ' << rows << ' ' << e;
    }
}

TEST(noisy_predictions, are_described_in_the_trace) {
  EXPECT_EQ(noisy_predictions({.predictor_noise = 0.25}).description(),
            "probabilities of the next layer; chance of an expert to have another one's: 0.25");
  EXPECT_EQ(
      noisy_predictions({.predictor_noise = 1.5, .predictor_noise_kind = noise_kind::gaussian})
          .description(),
      "probabilities of the next layer; standard deviation of what its logits are off: 1.5");
}

}  // namespace
}  // namespace noisy_predictions_test
