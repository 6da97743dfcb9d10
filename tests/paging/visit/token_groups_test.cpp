// SPDX-License-Identifier: Apache-2.0
#include "hotset/paging/visit/token_groups.hpp"

#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "naive_groups.hpp"
#include "random_source.hpp"

namespace hotset::token_groups_test {
namespace {

using support::expert_set;
using support::token_lists;
using testing::ElementsAre;

token_lists groups_of(const token_groups& built) {
  token_lists out;
  for (std::size_t g = 0; g < built.groups(); ++g)
    out.emplace_back(built.tokens(g).begin(), built.tokens(g).end());
  return out;
}

/// Fewest groups, by trying every subset of tokens.
std::size_t fewest_groups(const std::vector<expert_set>& needs, std::size_t room) {
  const std::size_t all = (std::size_t{1} << needs.size()) - 1;
  std::vector<std::size_t> best(all + 1, std::numeric_limits<std::size_t>::max());
  std::vector<bool> fits(all + 1, false);
  for (std::size_t subset = 1; subset <= all; ++subset) {
    expert_set held;
    for (std::size_t t = 0; t < needs.size(); ++t)
      if ((subset >> t & 1U) != 0) held.insert(needs[t].begin(), needs[t].end());
    fits[subset] = held.size() <= room;
  }
  best[0] = 0;
  for (std::size_t subset = 1; subset <= all; ++subset)
    for (std::size_t part = subset; part != 0; part = (part - 1) & subset)
      if (fits[part]) best[subset] = std::min(best[subset], best[subset ^ part] + 1);
  return best[all];
}

const auto every_expert = [](expert_id) { return true; };

TEST(token_groups, starts_with_the_first_token_and_adds_the_cheapest) {
  const geometry shape{.layers = 1, .experts = 8, .top_k = 2, .max_tokens_per_visit = 4};
  token_groups groups(shape);
  const std::vector<std::int32_t> ids{0, 1, 2, 3, 4, 5, 1, 2};
  ASSERT_TRUE(groups.build(ids, 3, every_expert));
  EXPECT_THAT(groups_of(groups), ElementsAre(ElementsAre(0, 3), ElementsAre(1), ElementsAre(2)));
  ASSERT_TRUE(groups.build(ids, 4, every_expert))
      << "tie at 4 slots: token 3 brings 1, token 1 then 1";
  EXPECT_THAT(groups_of(groups), ElementsAre(ElementsAre(0, 1, 3), ElementsAre(2)));
}

TEST(token_groups, ties_go_to_the_lower_token) {
  const geometry shape{.layers = 1, .experts = 8, .top_k = 2, .max_tokens_per_visit = 3};
  token_groups groups(shape);
  ASSERT_TRUE(groups.build(std::vector<std::int32_t>{0, 1, 4, 5, 2, 3}, 4, every_expert));
  EXPECT_THAT(groups_of(groups), ElementsAre(ElementsAre(0, 1), ElementsAre(2)));
}

TEST(token_groups, a_token_that_does_not_fit_alone_is_reported) {
  const geometry shape{.layers = 1, .experts = 8, .top_k = 3, .max_tokens_per_visit = 2};
  token_groups groups(shape);
  const std::vector<std::int32_t> ids{0, 1, 1, 2, 3, 4};
  EXPECT_FALSE(groups.build(ids, 2, every_expert));
  EXPECT_TRUE(groups.build(ids, 2, [](expert_id e) { return e != 3; })) << "3 takes no room";
}

TEST(token_groups, ids_that_name_no_expert_take_no_room) {
  const geometry shape{.layers = 1, .experts = 4, .top_k = 2, .max_tokens_per_visit = 3};
  token_groups groups(shape);
  ASSERT_TRUE(groups.build(std::vector<std::int32_t>{-1, 0, -1, -1, 99, 0}, 1, every_expert));
  EXPECT_THAT(groups_of(groups), ElementsAre(ElementsAre(0, 1, 2)));
}

// Hazard 8: a union that does not fit is divided, never refused, and no token is divided.
TEST(token_groups, random_visits_keep_every_promise) {
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    support::random_source random(seed);
    const auto tokens = static_cast<std::size_t>(1 + random.below(9));
    const auto k = static_cast<std::size_t>(1 + random.below(4));
    const auto experts = static_cast<std::int32_t>(k + random.below(12));
    const auto room = k + random.below(6);
    const geometry shape{.layers = 1,
                         .experts = experts,
                         .top_k = static_cast<std::int32_t>(k),
                         .max_tokens_per_visit = 9};
    const bool some_are_free = random.one_in(3);
    const auto needs_slot = [&](expert_id e) {
      return e >= 0 && e < experts && !(some_are_free && number(e) % 3 == 0);
    };
    token_groups groups(shape);
    for (int again = 0; again < 3; ++again) {
      std::vector<std::int32_t> ids;
      for (std::size_t i = 0; i < tokens * k; ++i)
        ids.push_back(random.one_in(10) ? -1 : random.id_below(experts));
      ASSERT_TRUE(groups.build(ids, room, needs_slot));
      const auto built = groups_of(groups);
      ASSERT_EQ(built, support::naive_groups(ids, k, room, needs_slot));

      std::vector<expert_set> needs;
      expert_set all;
      for (std::size_t t = 0; t < tokens; ++t) {
        needs.push_back(support::needs_of(ids, k, t, needs_slot));
        all.insert(needs.back().begin(), needs.back().end());
      }
      std::vector<int> placed(tokens, 0);
      for (const auto& group : built) {
        expert_set held;
        ASSERT_TRUE(std::ranges::is_sorted(group));
        for (const auto t : group) {
          ++placed[t];
          held.insert(needs[t].begin(), needs[t].end());
        }
        ASSERT_LE(held.size(), room);
      }
      ASSERT_EQ(placed, std::vector<int>(tokens, 1)) << "every token exactly once";
      ASSERT_LE(built.size(), (tokens + room / k - 1) / (room / k));
      ASSERT_GE(built.size(), (all.size() + room - 1) / room);
      if (tokens <= 7) {
        ASSERT_GE(built.size(), fewest_groups(needs, room));
      }
    }
  }
}

TEST(token_groups, many_tokens_agree_with_the_naive_rule) {
  const geometry shape{.layers = 1, .experts = 64, .top_k = 6, .max_tokens_per_visit = 200};
  token_groups groups(shape);
  support::random_source random(11);
  for (const std::size_t tokens : {63U, 64U, 65U, 200U}) {
    std::vector<std::int32_t> ids;
    for (std::size_t i = 0; i < tokens * 6; ++i) ids.push_back(random.id_below(64));
    ASSERT_TRUE(groups.build(ids, 16, every_expert));
    ASSERT_EQ(groups_of(groups), support::naive_groups(ids, 6, 16, every_expert));
  }
}

/// Recorded ids of the prompt, by layer: columns phase, layer, slot and expert of the route CSV.
std::map<std::int32_t, std::vector<std::int32_t>> read_prompt(const std::filesystem::path& path) {
  std::map<std::int32_t, std::vector<std::int32_t>> out;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line.front() < '0' || line.front() > '9') continue;
    std::istringstream fields(line);
    std::vector<std::int32_t> numbers;
    for (std::string field; numbers.size() < 6 && std::getline(fields, field, ',');)
      numbers.push_back(std::stoi(field));
    if (numbers[1] == 0) out[numbers[3]].push_back(numbers[5]);
  }
  return out;
}

TEST(token_groups, the_prompt_of_gemma_takes_178_groups_at_16_slots) {
  const std::string data = HOTSET_DATA_DIR;
  if (data.empty()) GTEST_SKIP() << "HOTSET_DATA_DIR is empty: recorded traces are not available";
  const auto path = std::filesystem::path(data) / "routing/bigmoe-gemma/gemma.route.csv";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "HOTSET_DATA_DIR holds no gemma trace";
  const auto prompt = read_prompt(path);
  ASSERT_EQ(prompt.size(), 30U);
  const geometry shape{.layers = 30, .experts = 128, .top_k = 6, .max_tokens_per_visit = 29};
  token_groups groups(shape);
  std::size_t total = 0;
  for (const auto& [layer, ids] : prompt) {
    ASSERT_EQ(ids.size(), 29U * 6U);
    ASSERT_TRUE(groups.build(ids, 16, every_expert));
    total += groups.groups();
  }
  EXPECT_EQ(total, 178U);
}

}  // namespace
}  // namespace hotset::token_groups_test
