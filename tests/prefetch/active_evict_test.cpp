// SPDX-License-Identifier: Apache-2.0
#include "hotset/prefetch/active_evict.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "random_source.hpp"

namespace hotset::active_evict_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const geometry shape{.layers = 2, .experts = 6, .top_k = 2, .max_tokens_per_visit = 4};

forecast of(const std::vector<float>& rows, std::int32_t depth = 1) {
  forecast out;
  out.probabilities = rows;
  out.depth = depth;
  return out;
}

// Descending: 3, 0, 5, 1, 2, 4. Gaps at the boundary of the two best: .04 (0 to 5), then .001 (5 to 1), then .1.
const std::vector<float> scores{0.25F, 0.209F, 0.109F, 0.32F, 0.002F, 0.21F};

TEST(active_evict, without_a_forecast_nothing_is_released) {
  active_evict rule(shape, {.tau = 1.0});
  const std::vector<slot_id> row(6, no_slot);
  EXPECT_EQ(rule.decide({}, {row}).free, 0U);
  const std::vector<float> half(9, 0.1F);
  EXPECT_EQ(rule.decide(of(half), {row}).free, 0U);
  EXPECT_EQ(rule.decide(of(scores), {}).free, 0U);
}

TEST(active_evict, only_the_next_layer_counts) {
  active_evict rule(shape, {.tau = 0.0});
  auto two = scores;
  two.insert(two.end(), {0.9F, 0, 0, 0, 0.1F, 0});
  const std::vector<slot_id> row{1_slot, 0_slot, no_slot, no_slot, no_slot, no_slot};
  EXPECT_EQ(rule.decide(of(two, 2), {row}).free, 1U);  // 0 is resident, 3 is not
}

TEST(active_evict, names_the_best_residents_if_it_is_to_spare_them) {
  const std::vector<slot_id> row{11_slot, 4_slot, 5_slot, 12_slot, 7_slot, 8_slot};
  active_evict plain(shape, {});
  EXPECT_THAT(plain.decide(of(scores), {row}).spared, IsEmpty());
  active_evict sparing(shape, {.protect_predicted = true});
  EXPECT_THAT(sparing.decide(of(scores), {row}).spared, ElementsAre(12, 11));
}

TEST(active_evict, more_tokens_want_the_experts_that_any_of_them_ranks_high) {
  active_evict rule(shape, {.tau = 0.0});
  // The two best of the tokens: 3 and 0; 5 and 0: three experts.
  auto rows = scores;
  rows.insert(rows.end(), {0.3F, 0, 0, 0.1F, 0, 0.6F});
  const std::vector<slot_id> none(6, no_slot);
  EXPECT_EQ(rule.decide(of(rows), {none}).free, 3U);
  std::vector<slot_id> row(6, no_slot);
  row[5] = 1_slot;  // of the three best means
  EXPECT_EQ(rule.decide(of(rows), {row}).free, 2U);
}

TEST(active_evict, agrees_with_the_equations) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    support::random_source random(seed);
    const auto e = static_cast<std::int32_t>(2 + random.below(12));
    const geometry any{
        .layers = 2,
        .experts = e,
        .top_k = 1 + static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(e))),
        .max_tokens_per_visit = 1};
    std::vector<float> p(static_cast<std::size_t>(e));
    for (auto& one : p) one = static_cast<float>(random.below(40)) / 64.0F;
    std::vector<slot_id> row(p.size(), no_slot);
    for (auto& slot : row)
      slot = random.one_in(2) ? static_cast<slot_id>(random.below(99)) : no_slot;
    const double tau = static_cast<double>(random.below(10)) / 64.0;
    const auto r_max = static_cast<std::int32_t>(random.below(5));
    active_evict rule(any, {.tau = tau, .r_max = r_max});

    std::vector<std::size_t> order(p.size());
    std::iota(order.begin(), order.end(), 0U);
    std::ranges::stable_sort(order, [&](auto a, auto b) { return p[a] > p[b]; });
    const auto k = static_cast<std::size_t>(any.top_k);
    std::size_t wanted = k;
    for (std::size_t n = 0; n < k; ++n) wanted -= row[order[n]] != no_slot ? 1U : 0U;
    for (std::size_t j = 0; j < static_cast<std::size_t>(r_max); ++j)
      if (k + j < p.size())
        wanted += double{p[order[k + j - 1]]} - double{p[order[k + j]]} < tau ? 1U : 0U;
    EXPECT_EQ(rule.decide(of(p), {row}).free, wanted) << seed;
  }
}

TEST(active_evict, refuses_invalid_configurations) {
  EXPECT_FALSE(active_evict::config{}.validate());
  EXPECT_EQ(active_evict::config{.tau = -1}.validate()->message,
            "active_evict tau = -1.000000, accepted: 0..1");
  EXPECT_TRUE(active_evict::config{.tau = std::nan("")}.validate());
  EXPECT_EQ(active_evict::config{.r_max = -1}.validate()->message,
            "active_evict r_max = -1, accepted: 0 or more");
}

}  // namespace
}  // namespace hotset::active_evict_test
