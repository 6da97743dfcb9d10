// SPDX-License-Identifier: Apache-2.0
#include "hotset/eviction/belady.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace hotset::belady_test {
namespace {

const geometry shape{.layers = 1, .experts = 8, .top_k = 2};
std::shared_ptr<const future_uses> future(const std::vector<future_uses::event>& events) {
  auto made = future_uses::create(shape, events);
  return made ? std::make_shared<const future_uses>(*std::move(made)) : nullptr;
}

TEST(belady, checks_its_future) {
  EXPECT_TRUE(belady::config{}.validate());
  const belady::config known{.future = future({{0, {0_layer, 4_expert}}})};
  EXPECT_FALSE(known.validate());
  EXPECT_FALSE(known.validate(shape));
  EXPECT_TRUE(known.validate({.layers = 2, .experts = 8, .top_k = 2}));
}

}  // namespace
}  // namespace hotset::belady_test
