// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/studies/quality.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "paging_samples.hpp"
#include "tiny_moe/experts/expert_library.hpp"
#include "trace_samples.hpp"

namespace quality_test {
namespace {

using namespace hotset::literals;
using namespace paging_samples;
using testing::ElementsAre;

std::vector<std::uint8_t> counting(std::size_t size) {
  std::vector<std::uint8_t> out(size);
  std::iota(out.begin(), out.end(), std::uint8_t{0});
  return out;
}

// Records its inputs and returns the logits that the test chooses.
class stand_in {
 public:
  virtual ~stand_in() = default;
  void reset() {
    calls.emplace_back("|");
    sequence_.clear();
  }
  std::span<const float> forward(std::span<const std::uint8_t> bytes, request_kind kind) {
    std::string call = kind == request_kind::prefill ? "p" : "d";
    logits_.clear();
    for (const std::uint8_t byte : bytes) {
      call += ' ' + std::to_string(byte);
      sequence_.push_back(byte);
      for (int next = 0; next < 256; ++next) logits_.push_back(logit(sequence_, next));
    }
    calls.push_back(call);
    return logits_;
  }
  std::vector<std::string> calls;

 private:
  virtual float logit(const std::vector<std::uint8_t>&, int) const { return 0.0F; }
  std::vector<std::uint8_t> sequence_;
  std::vector<float> logits_;
};

// The cost of the next byte depends on the bytes fed so far: the sum over windows shows wrong windows.
class by_context final : public stand_in {
  float logit(const std::vector<std::uint8_t>& fed, int next) const override {
    return static_cast<float>((fed.front() * 7 + next * 13 + static_cast<int>(fed.size()) * 29) %
                              31) /
           8.0F;
  }
};

TEST(bits_of, are_the_logarithm_of_the_share) {
  std::vector<float> logits(256, 0.0F);
  EXPECT_EQ(bits_of(logits, 0), 8.0);
  EXPECT_EQ(bits_of(logits, 255), 8.0);
  std::fill(logits.begin(), logits.end(), -1234.5F);
  EXPECT_EQ(bits_of(logits, 77), 8.0) << "a shift changes nothing";
  std::fill(logits.begin(), logits.end(), 0.0F);
  logits[9] = std::log(255.0F);  // as likely as the others together
  EXPECT_NEAR(bits_of(logits, 9), 1.0, 1e-6);
  EXPECT_NEAR(bits_of(logits, 8), std::log2(510.0), 1e-6);
  logits[9] = 1000.0F;
  EXPECT_EQ(bits_of(logits, 9), 0.0);
  EXPECT_NEAR(bits_of(logits, 8), 1000.0 / std::log(2.0), 1e-9);
}

TEST(measure_windows, windows_by_hand) {
  const auto calls = [](const quality_config& config, std::size_t bytes) {
    stand_in decoder;
    EXPECT_EQ(measure_windows(decoder, counting(bytes), config).bytes, bytes - 1);
    return decoder.calls;
  };
  EXPECT_THAT(calls({.window = 4}, 10),
              ElementsAre("|", "p 0 1 2 3", "|", "p 4 5 6 7", "|", "p 8"));
  EXPECT_THAT(calls({.window = 4}, 9), ElementsAre("|", "p 0 1 2 3", "|", "p 4 5 6 7"));
  EXPECT_THAT(calls({.window = 4}, 2), ElementsAre("|", "p 0"));
  EXPECT_THAT(calls({.window = 4, .prompt = 4}, 6), ElementsAre("|", "p 0 1 2 3", "|", "p 4"));
  EXPECT_THAT(calls({.window = 4, .stride = 2}, 8),
              ElementsAre("|", "p 0 1 2 3", "|", "p 2 3 4 5", "|", "p 4 5 6"));
  EXPECT_THAT(
      calls({.window = 4, .prompt = 2}, 8),
      ElementsAre("|", "p 0 1", "d 2", "d 3", "|", "p 2 3", "d 4", "d 5", "|", "p 4 5", "d 6"));
  EXPECT_THAT(calls({.window = 4, .prompt = 1, .stride = 4}, 8),
              ElementsAre("|", "p 0", "d 1", "d 2", "d 3", "|", "p 4", "d 5", "d 6"));
  EXPECT_THAT(calls({.window = 1}, 3), ElementsAre("|", "p 0", "|", "p 1"));
}

TEST(measure_windows, every_byte_is_scored_once_in_the_first_window_that_predicts_it) {
  for (const std::size_t size : {2U, 3U, 17U, 64U}) {
    const auto text = counting(size);
    for (std::size_t window = 1; window <= 9; ++window) {
      for (std::size_t prompt = 0; prompt <= window; ++prompt) {
        for (std::size_t stride = 0; stride <= window; ++stride) {
          const quality_config config{.window = window, .prompt = prompt, .stride = stride};
          by_context decoder;
          const quality result = measure_windows(decoder, text, config);
          double wanted = 0.0;
          for (std::size_t byte = 1; byte < size; ++byte) {
            std::size_t begin = 0;
            while (byte > begin + window) begin += config.stride_bytes();
            by_context fresh;
            const auto logits =
                fresh.forward(std::span(text).subspan(begin, byte - begin), request_kind::prefill);
            wanted += bits_of(logits.last(256), text[byte]);
          }
          ASSERT_EQ(result.bytes, size - 1);
          ASSERT_NEAR(result.bits, wanted, 1e-9) << size << " bytes, window " << window
                                                 << ", prompt " << prompt << ", stride " << stride;
        }
      }
    }
  }
}

TEST(quality, sums_may_be_added) {
  quality sum;
  EXPECT_TRUE(std::isnan(sum.bits_per_byte()));
  sum += {.bits = 6.0, .bytes = 2};
  sum += {.bits = 1.0, .bytes = 5};
  EXPECT_EQ(sum.bits_per_byte(), 1.0);
}

TEST(quality_config, invalid_values_are_refused) {
  const auto reason = [](const quality_config& config) {
    const auto bad = config.validate(100);
    return bad ? bad->message : std::string("accepted");
  };
  EXPECT_EQ(reason({.window = 100}), "accepted");
  EXPECT_EQ(reason({.window = 100, .prompt = 100, .stride = 100}), "accepted");
  EXPECT_EQ(reason({.window = 0}), "quality window = 0, accepted: 1..100");
  EXPECT_EQ(reason({.window = 101}), "quality window = 101, accepted: 1..100");
  EXPECT_EQ(reason({.window = 8, .prompt = 9}), "quality prompt = 9, accepted: 0..8");
  EXPECT_EQ(reason({.window = 8, .stride = 9}), "quality stride = 9, accepted: 0..8");
  resident_experts experts(weights());
  EXPECT_THROW((void)bits_per_byte(weights(), experts, bytes_of("abc"), {.window = 2049}),
               hotset::invalid_config);
  EXPECT_THAT([&] { (void)bits_per_byte(weights(), experts, bytes_of("a")); },
              testing::ThrowsMessage<hotset::invalid_config>(
                  "quality of a text of 1 bytes, accepted: 2 or more"));
}

constexpr std::string_view code =
    "def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    return a - b\n\n\n"
    "def mul(a, b):\n    return a * b\n\n\n12 + 30 = 42\n17 + 25 = 42\n20 + 22 = 42\n";

TEST(bits_per_byte, agrees_with_the_logits_of_one_pass) {
  resident_experts experts(weights());
  const auto text = bytes_of(code);
  engine decoder(weights(), experts);
  const auto logits = decoder.forward(text);
  double sum = 0.0;
  for (std::size_t i = 0; i + 1 < text.size(); ++i) {
    double total = 0.0;
    for (const float logit : logits.subspan(i * 256, 256))
      total += std::exp(static_cast<double>(logit));
    sum -= std::log2(std::exp(static_cast<double>(logits[i * 256 + text[i + 1]])) / total);
  }
  EXPECT_NEAR(bits_per_byte(weights(), experts, text), sum / static_cast<double>(text.size() - 1),
              1e-9);
}

TEST(bits_per_byte, two_bits_cost_more_than_sixteen) {
  const expert_library library(weights(), "2");
  resident_experts halves(weights());
  resident_copies two(library, 0_precision);
  const auto text = bytes_of(code);
  EXPECT_GT(bits_per_byte(weights(), two, text), bits_per_byte(weights(), halves, text) + 0.02);
}

class heldout : public testing::TestWithParam<std::pair<const char*, double>> {
 protected:
  void SetUp() override {
    if (std::string_view(HOTSET_DATA_DIR).empty())
      GTEST_SKIP() << "HOTSET_DATA_DIR is empty: held-out text is not available";
    const auto path = std::filesystem::path(HOTSET_DATA_DIR) / "tiny-moe" / "heldout" /
                      (std::string(GetParam().first) + ".txt");
    if (!std::filesystem::exists(path)) GTEST_SKIP() << "HOTSET_DATA_DIR holds no " << path;
    text_ = bytes_of(trace_samples::read_all(path));
    ASSERT_GT(text_.size(), 16U * 256U);
  }
  [[nodiscard]] std::span<const std::uint8_t> windows(std::size_t count) const {
    return std::span(text_).first(count * 256 + 1);
  }
  std::vector<std::uint8_t> text_;
};

TEST_P(heldout, has_the_cost_that_another_implementation_measured) {
  resident_experts experts(weights());
  EXPECT_NEAR(bits_per_byte(weights(), experts, windows(16)), GetParam().second, 1e-4);
}

TEST_P(heldout, costs_little_more_at_four_bits_and_at_two) {
  static const expert_library library(weights(), "8:4:2");
  resident_experts halves(weights());
  const double full = bits_per_byte(weights(), halves, windows(4));
  const std::array<double, 3> most{0.01, 0.02, 0.3};
  for (const auto p : hotset::each<hotset::precision_id>(3)) {
    resident_copies copies(library, p);
    const double cost = bits_per_byte(weights(), copies, windows(4)) - full;
    EXPECT_LT(cost, most[index_of(p)]) << library.bits()[index_of(p)] << " bits";
    EXPECT_GT(cost, p == 2 ? 0.01 : -0.01) << library.bits()[index_of(p)] << " bits";
  }
}

INSTANTIATE_TEST_SUITE_P(texts, heldout,
                         testing::Values(std::pair{"prose", 1.7069168},
                                         std::pair{"code", 1.3771325}, std::pair{"math", 0.8129689},
                                         std::pair{"tool", 0.4421466}),
                         [](const auto& of) { return std::string(of.param.first); });

}  // namespace
}  // namespace quality_test
