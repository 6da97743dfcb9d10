// SPDX-License-Identifier: Apache-2.0
// Damaged co-activation tables are refused with a message, or loaded as a table that saves to the same bytes and
// predicts numbers.
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "damage.hpp"
#include "hotset/predict/co_activation.hpp"

namespace co_activation_tables_test {
namespace {
using namespace hotset;

const geometry shape{.layers = 3, .experts = 5, .top_k = 2, .max_tokens_per_visit = 1};

routing_view view_of(layer_id layer, step_id step, std::span<const expert_id> ids) {
  routing_view view;
  view.layer = layer;
  view.step = step;
  view.experts = ids;
  return view;
}

void learn(co_activation& table, splitmix64& random, step_id steps) {
  for (step_id step = 0; step < steps; ++step)
    for (const auto layer : each<layer_id>(shape.layers)) {
      const std::vector<expert_id> ids{static_cast<expert_id>(random.below(5)),
                                       static_cast<expert_id>(random.below(5))};
      EXPECT_EQ(table.observe(view_of(layer, step, ids)), status::ok);
    }
}

void expect_usable(co_activation& table, splitmix64& random) {
  const std::vector<expert_id> ids{static_cast<expert_id>(random.below(5)), 1_expert};
  EXPECT_EQ(table.observe(view_of(0_layer, 1000, ids)), status::ok);
  for (const auto p : table.predict(view_of(0_layer, 1000, ids)).probabilities) {
    ASSERT_TRUE(std::isfinite(p));
    ASSERT_GE(p, 0.0F);
  }
  co_activation both(shape, {});
  ASSERT_FALSE(both.merge(table));
  ASSERT_FALSE(both.merge(table)) << "counts that would overflow stay at the largest";
  ASSERT_GE(both.uses(), table.uses());
}

TEST(fuzz_tables, co_activation) {
  splitmix64 first(1);
  co_activation sample(shape, {});
  learn(sample, first, 30);
  const auto saved = sample.save();
  std::string bytes;
  for (const auto b : saved) bytes += static_cast<char>(b);
  const auto accepted = fuzz_reader(bytes, 3000, [&](const std::string& text, splitmix64& random) {
    const auto damage = std::as_bytes(std::span(text));
    co_activation table(shape, {});
    if (const auto bad = table.load(damage)) {
      EXPECT_EQ(bad->message.find('\n'), std::string::npos);
      EXPECT_EQ(table.save(), co_activation(shape, {}).save()) << "a refused table leaves nothing";
      return false;
    }
    const auto again = table.save();
    EXPECT_TRUE(std::equal(again.begin(), again.end(), damage.begin(), damage.end()));
    expect_usable(table, random);
    return true;
  });
  EXPECT_GT(accepted, 0U) << "counts alone may be anything";
}

}  // namespace
}  // namespace co_activation_tables_test
