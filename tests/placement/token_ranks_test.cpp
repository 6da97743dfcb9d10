// SPDX-License-Identifier: Apache-2.0
#include "hotset/placement/token_ranks.hpp"

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "hotset/core/numbers/splitmix64.hpp"
#include "hotset/placement/even_packing.hpp"

namespace token_ranks_test {
namespace {

using namespace hotset;
using hotset::detail::token_ranks;

std::vector<expert_id> made_tokens(std::int32_t experts, std::size_t tokens, std::size_t top_k) {
  splitmix64 random(4);
  std::vector<expert_id> out;
  for (std::size_t t = 0; t < tokens; ++t) {
    std::set<std::uint64_t> chosen;
    while (chosen.size() < top_k) chosen.insert(random.below(static_cast<unsigned>(experts)));
    for (const auto e : chosen) out.push_back(static_cast<expert_id>(e));
  }
  out.back() = no_expert;  // a token that was routed to fewer
  return out;
}

std::int64_t naive(const placement_shape& shape, const std::vector<expert_id>& ids,
                   std::size_t top_k, const expert_placement& placed) {
  std::int64_t out = 0;
  for (std::size_t t = 0; t < ids.size() / top_k; ++t) {
    std::set<std::int32_t> ranks;
    for (std::size_t k = 0; k < top_k; ++k) {
      std::vector<std::int32_t> holders;
      for (std::size_t slot = 0; slot < placed.size(); ++slot)
        if (placed[slot] == ids[t * top_k + k]) holders.push_back(shape.rank_of(slot));
      const auto hash = (std::uint64_t{t} * 2654435769U) & 0xffffffffU;
      if (!holders.empty()) ranks.insert(holders[hash % holders.size()]);
    }
    out += static_cast<std::int64_t>(ranks.size());
  }
  return out;
}

TEST(token_ranks, count_ranks_by_definition_now_and_after_changes) {
  const auto shape = placement_shape::of(12, 4, 4).value();
  const auto ids = made_tokens(12, 300, 3);
  auto placed = placement_in_order(shape);
  token_ranks ranks(shape, ids, 3);
  ranks.place(placed);
  EXPECT_EQ(ranks.tokens(), 300U);
  EXPECT_EQ(ranks.ranks(), naive(shape, ids, 3, placed));
  splitmix64 random(8);
  for (int n = 0; n < 60; ++n) {
    auto changed = placed;
    const auto i = random.below(placed.size());
    const auto j = random.below(placed.size());
    if (placed[i] == placed[j]) continue;
    std::swap(changed[i], changed[j]);
    ASSERT_EQ(ranks.if_changed(placed[i], placed[j], changed), naive(shape, ids, 3, changed));
    ASSERT_EQ(ranks.ranks(), naive(shape, ids, 3, placed)) << "asking changes nothing";
    ASSERT_LE(ranks.ranks() - naive(shape, ids, 3, changed),
              ranks.uses(placed[i]) + ranks.uses(placed[j]));
    placed = changed;
    ranks.place(placed);
  }
}

TEST(token_ranks, may_be_empty) {
  token_ranks none(placement_shape::of(4, 0, 2).value(), {}, 0);
  EXPECT_EQ(none.tokens(), 0U);
  EXPECT_EQ(none.ranks(), 0);
}

}  // namespace
}  // namespace token_ranks_test
