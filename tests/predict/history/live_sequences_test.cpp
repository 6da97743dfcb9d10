// SPDX-License-Identifier: Apache-2.0
#include "hotset/predict/history/live_sequences.hpp"

#include <cstddef>
#include <map>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "random_source.hpp"

namespace hotset::live_sequences_test {
namespace {

using testing::ElementsAre;

/// Opened and closed rows in order: r for an opened row, -r - 1 for a closed one.
struct trail {
  std::vector<int> events;
  std::size_t enter(live_sequences& live, sequence_id sequence, step_id step) {
    return live.enter(
        sequence, step, [this](std::size_t row) { events.push_back(-static_cast<int>(row) - 1); },
        [this](std::size_t row) { events.push_back(static_cast<int>(row)); });
  }
};

TEST(live_sequences, a_request_keeps_its_row_until_it_ends) {
  live_sequences live(3);
  trail seen;
  EXPECT_EQ(live.find(7), live_sequences::none);
  EXPECT_EQ(seen.enter(live, 7, 0), 0U);
  EXPECT_EQ(seen.enter(live, 900, 0), 1U);
  EXPECT_EQ(seen.enter(live, 7, 1), 0U);
  EXPECT_THAT(seen.events, ElementsAre(0, 1));
  live.leave(0);
  EXPECT_EQ(live.find(7), live_sequences::none);
  EXPECT_FALSE(live.is_live(0));
  EXPECT_EQ(live.find(900), 1U);
  EXPECT_EQ(seen.enter(live, 8, 2), 0U) << "the first free row";
  EXPECT_EQ(seen.enter(live, 9, 2), 2U);
}

TEST(live_sequences, the_least_recently_used_one_makes_room) {
  live_sequences live(2);
  trail seen;
  EXPECT_EQ(seen.enter(live, 1, 0), 0U);
  EXPECT_EQ(seen.enter(live, 2, 1), 1U);
  EXPECT_EQ(seen.enter(live, 1, 2), 0U);
  EXPECT_EQ(seen.enter(live, 3, 3), 1U);
  EXPECT_THAT(seen.events, ElementsAre(0, 1, -2, 1));
  EXPECT_EQ(live.find(2), live_sequences::none);
  EXPECT_EQ(live.find(3), 1U);
}

/// The rule with a map and a list in order of use.
TEST(live_sequences, agrees_with_the_rule_written_out) {
  support::random_source random(11);
  for (const std::size_t rows : {1U, 2U, 5U, 16U}) {
    live_sequences live(rows);
    struct use {
      std::size_t row;
      step_id step;
      int time;
    };
    std::map<sequence_id, use> model;
    int time = 0;
    for (step_id step = 0; step < 400; ++step)
      for (int i = 0; i < 4; ++i) {
        const auto sequence = static_cast<sequence_id>(random.below(3 * rows));
        if (random.one_in(5)) {
          if (model.erase(sequence) > 0) live.leave(live.find(sequence));
        } else {
          const auto found = live.enter(
              sequence, step, [](std::size_t) {}, [](std::size_t) {});
          auto known = model.find(sequence);
          if (known == model.end()) {
            std::vector<bool> taken(rows, false);
            for (const auto& [id, of] : model) taken[of.row] = true;
            auto row = live_sequences::none;
            for (std::size_t r = rows; r-- > 0;)
              if (!taken[r]) row = r;
            if (row == live_sequences::none) {
              auto oldest = model.end();
              for (auto it = model.begin(); it != model.end(); ++it)
                if (it->second.step != step &&
                    (oldest == model.end() || it->second.time < oldest->second.time))
                  oldest = it;
              if (oldest != model.end()) {
                row = oldest->second.row;
                model.erase(oldest);
              }
            }
            if (row != live_sequences::none) known = model.insert({sequence, {row, step, 0}}).first;
          }
          if (known == model.end()) {
            ASSERT_EQ(found, live_sequences::none);
          } else {
            known->second.step = step;
            known->second.time = ++time;
            ASSERT_EQ(found, known->second.row);
          }
        }
        for (const auto& [id, of] : model) ASSERT_EQ(live.find(id), of.row) << step;
        std::size_t used = 0;
        for (std::size_t r = 0; r < rows; ++r) used += live.is_live(r) ? 1U : 0U;
        ASSERT_EQ(used, model.size());
      }
  }
}

}  // namespace
}  // namespace hotset::live_sequences_test
