// SPDX-License-Identifier: Apache-2.0
// Damaged routing histories with a corrected checksum are refused with a message, or loaded as one that saves to the
// same bytes and that policies can start from.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <gtest/gtest.h>

#include "damage.hpp"
#include "hotset/predict/history/next_use_values.hpp"
#include "hotset/predict/similar_steps_predictor.hpp"
#include "token_visit.hpp"

namespace saved_histories_test {
namespace {
using namespace hotset;

const geometry shape{.layers = 2, .experts = 6, .top_k = 2, .max_tokens_per_visit = 2};

/// FNV-1a checksum, as at the end of the file.
void mend_sum(std::string& bytes) {
  if (bytes.size() < 8) return;
  std::uint64_t sum = 0xcbf29ce484222325U;
  const auto end = bytes.size() - 8;
  for (std::size_t i = 0; i < end; ++i)
    sum = (sum ^ static_cast<unsigned char>(bytes[i])) * 0x100000001b3U;
  for (std::size_t i = 0; i < 8; ++i) bytes[end + i] = static_cast<char>(sum >> (8 * i));
}

void expect_usable(const saved_history& found) {
  next_use_values::config options;
  options.history = routing_history::config{.rows = 256};
  options.from.saved = std::make_shared<const saved_history>(found);
  similar_steps_predictor::config ahead;
  ahead.from = options.from;
  if (options.validate(shape)) return;
  next_use_values values(shape, options);
  auto predictor = similar_steps_predictor::create(shape, ahead).value();
  for (step_id step = 0; step < 4; ++step)
    for (const auto layer : each<layer_id>(shape.layers)) {
      const support::token_visit visit{
          .layer = layer, .step = step, .ids = {static_cast<expert_id>(step), 5_expert}};
      values.stage(visit.view());
      for (const auto value : values.values()) ASSERT_GE(value, 0.0F);
      values.keep();
      for (const auto p : predictor.expect(visit.view(), {}, 0).probabilities) {
        ASSERT_GE(p, 0.0F);
        ASSERT_LE(p, 1.001F);
      }
    }
}

TEST(fuzz_histories, saved) {
  splitmix64 first(1);
  next_use_values::config options;
  options.history = routing_history::config{.rows = 256};
  next_use_values sample(shape, options);
  for (step_id step = 0; step < 12; ++step)
    for (const auto layer : each<layer_id>(shape.layers)) {
      support::token_visit visit{.layer = layer, .step = step};
      for (int k = 0; k < 2; ++k) visit.ids.push_back(static_cast<expert_id>(first.below(6)));
      sample.stage(visit.view());
      sample.keep();
    }
  std::string bytes;
  for (const auto b : sample.save(shape, 3).save()) bytes += static_cast<char>(b);
  const auto accepted = fuzz_reader(bytes, 3000, [](std::string text, splitmix64&) {
    mend_sum(text);
    const auto damage = std::as_bytes(std::span(text));
    const auto loaded = saved_history::load(damage);
    if (!loaded) {
      EXPECT_EQ(loaded.error().message.find('\n'), std::string::npos);
      return false;
    }
    const auto again = loaded->save();
    EXPECT_TRUE(std::equal(again.begin(), again.end(), damage.begin(), damage.end()));
    expect_usable(*loaded);
    return true;
  });
  EXPECT_GT(accepted, 0U) << "ids and rates may be others";
}

}  // namespace
}  // namespace saved_histories_test
