// SPDX-License-Identifier: Apache-2.0
#include "hotset/placement/place_by_steps.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/placement/placement_score.hpp"
#include "made_loads.hpp"

namespace place_by_steps_test {
namespace {

using namespace hotset;
using hotset_test::cost_of;
using hotset_test::made_loads;
using testing::HasSubstr;

expert_placement of(const std::vector<int>& ids) {
  expert_placement out;
  for (const auto id : ids) out.push_back(static_cast<expert_id>(id));
  return out;
}

/// The least cost of all placements in which no rank holds an expert twice.
class exhaustive_search {
 public:
  exhaustive_search(const placement_shape& shape, const step_loads& loads)
      : shape_(shape), loads_(loads) {}
  double least() {
    fill(0);
    return least_;
  }

 private:
  void fill(std::size_t slot) {
    if (slot == static_cast<std::size_t>(shape_.slots())) {
      if (!check_placement(shape_, placed_))
        least_ = std::min(least_, cost_of(shape_, placed_, loads_));
      return;
    }
    const auto width = static_cast<std::size_t>(shape_.slots_per_rank);
    const auto begins = slot % width == 0;
    // Experts ascend in a rank. Ranks are equal, so their first experts ascend too.
    const auto first = !begins     ? number(placed_.back()) + 1
                       : slot == 0 ? 0
                                   : number(placed_[slot - width]);
    for (auto e = first; e < shape_.experts; ++e) {
      placed_.push_back(static_cast<expert_id>(e));
      fill(slot + 1);
      placed_.pop_back();
    }
  }
  placement_shape shape_;
  const step_loads& loads_;
  expert_placement placed_;
  double least_ = std::numeric_limits<double>::infinity();
};

struct small_case {
  std::int32_t experts, redundant, ranks;
};

TEST(place_by_steps, finds_the_optimum_of_small_cases_in_eight_starts) {
  for (const auto& [experts, redundant, ranks] : {small_case{8, 0, 2},
                                                  {8, 0, 4},
                                                  {6, 0, 3},
                                                  {7, 2, 3},
                                                  {8, 2, 2},
                                                  {5, 3, 4},
                                                  {8, 1, 3},
                                                  {8, 4, 3}})
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      const auto shape = placement_shape::of(experts, redundant, ranks).value();
      const auto loads = made_loads(experts, 9, seed, 12);
      const auto placed = place_by_steps(shape, loads, {.starts = 8}).value();
      EXPECT_FALSE(check_placement(shape, placed));
      EXPECT_NEAR(cost_of(shape, placed, loads), exhaustive_search(shape, loads).least(), 1e-6)
          << experts << '+' << redundant << " on " << ranks << ", seed " << seed;
    }
}

TEST(place_by_steps, is_no_worse_than_its_start) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const auto shape = placement_shape::of(32, 16, 8).value();
    const auto loads = made_loads(32, 50, seed);
    const auto packed = even_packing(shape, loads.sums());
    const auto placed = place_by_steps(shape, loads).value();
    EXPECT_LT(cost_of(shape, placed, loads), cost_of(shape, packed, loads));
  }
}

TEST(place_by_steps, separates_experts_that_are_busy_together) {
  // Sums are equal: by them every placement is as good.
  std::vector<std::uint32_t> counts;
  for (int s = 0; s < 20; ++s)
    for (const auto load : s % 2 == 0 ? std::vector{9U, 9U, 1U, 1U} : std::vector{1U, 1U, 9U, 9U})
      counts.push_back(load);
  const auto loads = step_loads::of(4, counts).value();
  const placement_shape shape{4, 2, 2, 1, 1};
  const auto together = of({0, 1, 2, 3});
  const auto placed = place_by_steps(shape, loads, {.start = together}).value();
  EXPECT_DOUBLE_EQ(score_of(shape, together, loads).excess(), .8);
  EXPECT_DOUBLE_EQ(score_of(shape, placed, loads).excess(), 0);
}

TEST(place_by_steps, keeps_groups_in_their_node) {
  const auto shape = placement_shape::of(16, 8, 4, 2, 4).value();
  const auto loads = made_loads(16, 40, 3);
  const auto packed = even_packing(shape, loads.sums());
  const auto placed = place_by_steps(shape, loads).value();
  EXPECT_NE(placed, packed);
  const auto node_of = [&](const expert_placement& p, expert_id e) {
    return shape.rank_of(static_cast<std::size_t>(std::ranges::find(p, e) - p.begin())) / 2;
  };
  for (std::size_t slot = 0; slot < placed.size(); ++slot)
    EXPECT_EQ(shape.rank_of(slot) / 2, node_of(packed, placed[slot]));
}

TEST(place_by_steps, moves_fewer_experts_if_moves_cost_more) {
  const auto shape = placement_shape::of(64, 16, 8).value();
  const auto start = even_packing(shape, made_loads(64, 60, 1).sums());
  const auto later = made_loads(64, 60, 2);
  std::int64_t before = std::numeric_limits<std::int64_t>::max();
  for (const std::uint32_t cost : {0U, 1'000U, 10'000U, 1'000'000U}) {
    const auto placed = place_by_steps(shape, later, {.start = start, .move_cost = cost}).value();
    const auto moved = moved_experts(shape, start, placed);
    EXPECT_LE(moved, before) << cost;
    before = moved;
  }
  EXPECT_EQ(before, 0);
}

TEST(place_by_steps, keeps_experts_that_stay_in_their_slots) {
  const auto shape = placement_shape::of(64, 16, 8).value();
  const auto start = even_packing(shape, made_loads(64, 60, 1).sums());
  const auto placed =
      place_by_steps(shape, made_loads(64, 60, 2), {.start = start, .move_cost = 2000}).value();
  std::int64_t changed = 0;
  for (std::size_t slot = 0; slot < placed.size(); ++slot) changed += placed[slot] != start[slot];
  EXPECT_EQ(changed, moved_experts(shape, start, placed));
}

TEST(place_by_steps, frees_slots_of_a_rank_that_holds_an_expert_twice) {
  const placement_shape shape{4, 2, 3, 1, 1};
  const auto start = of({0, 0, 1, 2, 3, 3});
  const auto placed = place_by_steps(shape, made_loads(4, 30, 1), {.start = start}).value();
  for (std::size_t slot = 0; slot < placed.size(); ++slot)
    EXPECT_EQ(std::ranges::count(std::span(placed).subspan(slot / 3 * 3, 3), placed[slot]), 1);
}

TEST(place_by_steps, brings_experts_together_that_tokens_use_together) {
  // Tokens use expert 2n and 2n + 1; loads are equal, so any placement is balanced.
  std::vector<expert_id> tokens;
  for (int t = 0; t < 64; ++t) {
    tokens.push_back(static_cast<expert_id>(2 * (t % 8)));
    tokens.push_back(static_cast<expert_id>(2 * (t % 8) + 1));
  }
  const auto loads = step_loads::of(16, std::vector<std::uint32_t>(16 * 10, 8)).value();
  const auto shape = placement_shape::of(16, 0, 4).value();
  const auto ranks = [&](const expert_placement& placed) {
    token_dispatch out(shape, placed, replica_choice::hash);
    out.add_step(tokens, 2);
    return out.score().ranks_per_token();
  };
  const auto apart = place_by_steps(shape, loads).value();
  const auto together =
      place_by_steps(shape, loads, {.copy_cost = 50'000, .tokens = tokens, .top_k = 2}).value();
  EXPECT_GT(ranks(apart), 1.5);
  EXPECT_DOUBLE_EQ(ranks(together), 1);
}

TEST(place_by_steps, gives_up_balance_for_a_replica_that_saves_ranks) {
  // All tokens use experts 0 and 2. Half of them save a rank if rank 0 gets expert 2 in place of a replica of 1.
  const placement_shape shape{5, 3, 2, 1, 1};
  const auto start = of({0, 1, 2, 3, 4, 1});
  const auto loads = step_loads::of(5, {10, 2, 4, 5, 6}).value();
  const auto tokens = of({0, 2, 0, 2, 0, 2, 0, 2});
  EXPECT_EQ(place_by_steps(shape, loads, {.start = start}).value(), start);
  const auto placed =
      place_by_steps(shape, loads,
                     {.start = start, .copy_cost = 111'111, .tokens = tokens, .top_k = 2})
          .value();
  EXPECT_EQ(placed, of({0, 2, 0, 3, 4, 1}));  // then a replica of 0 balances
}

struct proven_case {
  std::int32_t experts, ranks;
  std::size_t steps;
  std::uint64_t seed;
  double optimum;
};
/// HiGHS proved these optima of a mixed-integer program: the same cost, without replicas.
TEST(place_by_steps, finds_the_optima_that_a_solver_proved) {
  for (const auto& [experts, ranks, steps, seed, optimum] : {proven_case{12, 3, 8, 1, 1048},
                                                             {12, 4, 8, 2, 762},
                                                             {15, 3, 10, 3, 1579},
                                                             {16, 4, 6, 4, 735},
                                                             {12, 2, 20, 5, 3339}}) {
    const auto shape = placement_shape::of(experts, 0, ranks).value();
    const auto loads = made_loads(experts, steps, seed);
    const auto placed = place_by_steps(shape, loads, {.starts = 8}).value();
    EXPECT_NEAR(cost_of(shape, placed, loads), optimum, 1e-6) << experts << " on " << ranks;
  }
}

TEST(place_by_steps, is_the_same_for_any_scale_of_a_power_of_two) {
  const auto shape = placement_shape::of(32, 8, 8).value();
  EXPECT_EQ(place_by_steps(shape, made_loads(32, 40, 5, 1)).value(),
            place_by_steps(shape, made_loads(32, 40, 5, 64)).value());
}

/// Ranks decide alone, so every build must give these bits. CONTRIBUTING: change it with the rule.
TEST(place_by_steps, decides_as_every_build_does) {
  std::uint64_t hash = 14695981039346656037U;
  const auto add = [&](const expert_placement& placed) {
    for (const auto e : placed) hash = (hash ^ index_of(e)) * 1099511628211U;
  };
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    const auto shape = placement_shape::of(64, 16, 8).value();
    const auto first = place_by_steps(shape, made_loads(64, 60, seed), {.starts = 3}).value();
    add(first);
    add(place_by_steps(shape, made_loads(64, 37, seed + 10), {.start = first, .move_cost = 2000})
            .value());
  }
  EXPECT_EQ(hash, 7388571986093605674U);
}

TEST(place_by_steps, refuses_what_cannot_be_and_says_what_is_accepted) {
  const auto shape = placement_shape::of(8, 0, 4).value();
  const auto loads = made_loads(8, 4, 1);
  const auto refused = [&](const place_config& how) {
    const auto out = place_by_steps(shape, loads, how);
    return out ? "" : out.error().message;
  };
  const auto start = of({0, 1, 2});
  EXPECT_THAT(refused({.start = start}), HasSubstr("accepted: 8"));
  EXPECT_THAT(refused({.move_cost = 1}), HasSubstr("without a start"));
  EXPECT_THAT(refused({.copy_cost = 1}), HasSubstr("without tokens"));
  const auto whole = of({0, 1, 2, 3, 4, 5, 6, 7});
  EXPECT_THAT(refused({.start = whole, .move_cost = 1'000'001}), HasSubstr("0 to 1000000"));
  EXPECT_THAT(refused({.starts = 0}), HasSubstr("accepted: 1 or more"));
  const auto three = of({0, 1, 2});
  EXPECT_THAT(refused({.tokens = three, .top_k = 2}), HasSubstr("a multiple of top_k = 2"));
  EXPECT_THAT(place_by_steps(shape, made_loads(7, 4, 1)).error().message,
              HasSubstr("loads of 7 experts, accepted: 8"));
  const auto many = step_loads::of(1, std::vector<std::uint32_t>((1U << 20U) + 1, 1)).value();
  EXPECT_THAT(place_by_steps({1, 1, 1, 1, 1}, many).error().message, HasSubstr("at most 1048576"));
  EXPECT_THAT(place_by_steps({8, 4, 1, 1, 1}, loads).error().message, HasSubstr("slots_per_rank"));
}

TEST(place_by_steps, places_without_a_step_or_a_token) {
  const auto shape = placement_shape::of(8, 4, 4).value();
  EXPECT_FALSE(check_placement(shape, place_by_steps(shape, step_loads(8)).value()));
  const auto idle = step_loads::of(8, std::vector<std::uint32_t>(24, 0)).value();
  EXPECT_FALSE(check_placement(shape, place_by_steps(shape, idle).value()));
  const auto alone = placement_shape::of(8, 0, 1).value();
  EXPECT_FALSE(check_placement(alone, place_by_steps(alone, made_loads(8, 4, 1)).value()));
}

}  // namespace
}  // namespace place_by_steps_test
