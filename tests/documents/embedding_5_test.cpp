// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <gtest/gtest.h>

#include "hotset/registry/policy_registry.hpp"

namespace hotset {
namespace {

std::string chosen(const pool_layout& layout) {
  const auto refuse = [](const std::string& reason) { return reason; };
#include "embedding_5.inc"
  return pages ? std::string(pages->eviction().held_name()) : pages.error().message;
}

TEST(embedding, a_policy_is_chosen_by_name) {
  EXPECT_EQ(chosen(pool_layout::shared({.layers = 1, .experts = 4, .top_k = 1}, 2).value()),
            "protect_hot");
}

}  // namespace
}  // namespace hotset
