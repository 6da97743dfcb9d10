// SPDX-License-Identifier: Apache-2.0
#include "hotset/predict/history/visit_log.hpp"

#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace hotset::visit_log_test {
namespace {

using visits = std::vector<std::pair<layer_id, std::vector<expert_id>>>;

visits visits_of(const visit_log& log, std::size_t sequence) {
  visits out;
  log.each(sequence, [&](layer_id layer, std::span<const expert_id> ids) {
    out.emplace_back(layer, std::vector<expert_id>(ids.begin(), ids.end()));
  });
  return out;
}

TEST(visit_log, gives_back_each_sequences_visits_in_their_order) {
  visit_log log(2, 3, 2);
  EXPECT_TRUE(log.is_empty(0));
  log.add(0, 2_layer, std::vector{4_expert, 5_expert});
  log.add(1, 0_layer, std::vector{6_expert, no_expert});
  log.add(0, 1_layer, std::vector{4_expert, 7_expert});
  EXPECT_FALSE(log.is_empty(0));
  EXPECT_EQ(visits_of(log, 0),
            (visits{{2_layer, {4_expert, 5_expert}}, {1_layer, {4_expert, 7_expert}}}));
  EXPECT_EQ(visits_of(log, 1), (visits{{0_layer, {6_expert, no_expert}}}));
}

TEST(visit_log, has_room_for_a_visit_of_each_layer_again_once_it_is_cleared) {
  visit_log log(2, 3, 1);
  for (int round = 0; round < 3; ++round) {
    for (const auto l : each<layer_id>(3)) {
      log.add(0, l, std::vector{expert_id{number(l) + round}});
      log.add(1, l, std::vector{9_expert});
    }
    EXPECT_EQ(visits_of(log, 0), (visits{{0_layer, {expert_id{round}}},
                                         {1_layer, {expert_id{1 + round}}},
                                         {2_layer, {expert_id{2 + round}}}}));
    for (std::size_t sequence = 0; sequence < 2; ++sequence) {
      log.clear(sequence);
      EXPECT_TRUE(log.is_empty(sequence));
      EXPECT_EQ(visits_of(log, sequence), visits{});
    }
  }
}

TEST(visit_log, takes_over_what_another_one_holds) {
  visit_log log(2, 2, 2);
  visit_log other(2, 2, 2);
  log.add(1, 0_layer, std::vector{1_expert, 2_expert});
  other.add(1, 1_layer, std::vector{3_expert, 4_expert});
  other.add(1, 0_layer, std::vector{5_expert, 6_expert});
  other.add(0, 0_layer, std::vector{7_expert, 8_expert});
  log.copy(1, other);
  other.clear(1);
  EXPECT_EQ(visits_of(log, 1),
            (visits{{1_layer, {3_expert, 4_expert}}, {0_layer, {5_expert, 6_expert}}}));
  EXPECT_TRUE(log.is_empty(0));
  log.copy(1, other);
  EXPECT_TRUE(log.is_empty(1));
}

}  // namespace
}  // namespace hotset::visit_log_test
