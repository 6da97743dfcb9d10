// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "hotset/eviction/similar_steps.hpp"
#include "hotset/paging/pager.hpp"

namespace hotset {
namespace {

constexpr geometry shape{.layers = 2, .experts = 8, .top_k = 2, .max_tokens_per_visit = 1};

/// Minimal cache for the document's code.
struct cache_of_a_day {
  hotset::pager<similar_steps> pages{{.layout = pool_layout::per_layer(shape, 4).value()}};
  [[nodiscard]] const hotset::pager<similar_steps>& pager() const { return pages; }
};

struct next_morning : testing::Test {
  cache_of_a_day cache;
  saved_history kept;

  std::string begin(std::uint64_t model) {
    const auto layout = pool_layout::per_layer(shape, 4).value();
    const auto refuse = [](const std::string& reason) { return reason; };
#include "embedding_8.inc"
    kept = warm.eviction().save(shape, model);
    return "warm";
  }
};

TEST_F(next_morning, starts_from_the_saved_history) {
  auto plan = cache.pages.make_plan();
  for (step_id step = 0; step < 21; ++step)
    for (const auto layer : each<layer_id>(2)) {
      const std::vector<expert_id> ids{static_cast<expert_id>(step % 8), 3_expert};
      routing_view view;
      view.layer = layer;
      view.step = step;
      view.experts = ids;
      ASSERT_EQ(cache.pages.serve(view, plan, [](const visit_group&) {}), status::ok);
    }
  EXPECT_EQ(begin(7), "warm");
  EXPECT_EQ(kept.rows(), 10U) << "half of the 20 steps that are whole";
  EXPECT_EQ(kept.model, 7U);
  EXPECT_EQ(kept.visits[0], 11U);
}

}  // namespace
}  // namespace hotset
