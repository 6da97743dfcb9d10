// SPDX-License-Identifier: Apache-2.0
#include "hotset/core/numbers/unique_ids.hpp"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "random_source.hpp"

namespace hotset::unique_ids_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<expert_id> collect(unique_ids& unique, const std::vector<std::int32_t>& ids) {
  std::vector<expert_id> out(ids.size() + 1, expert_id{-7});
  out.resize(unique.collect(ids, out.data()));
  return out;
}
std::vector<std::uint32_t> last_order(unique_ids& unique, const std::vector<std::int32_t>& ids,
                                      std::size_t count) {
  std::vector<std::uint32_t> out(count);
  unique.last_appearance_order(ids, out.data());
  return out;
}

constexpr auto lowest = std::numeric_limits<std::int32_t>::min();
constexpr auto highest = std::numeric_limits<std::int32_t>::max();

// Hazard 6: -1 means no expert; any other id out of range is a caller's error.
TEST(unique_ids, distinguishes_unknown_ids_from_minus_one) {
  unique_ids unique(8, 16);
  EXPECT_THAT(collect(unique, {-1, 7, 0}), ElementsAre(7, 0));
  EXPECT_FALSE(unique.unknown());
  for (const auto id : {8, highest, -2, lowest}) {
    EXPECT_TRUE(unique.is_unknown(expert_id{id})) << id;
    EXPECT_THAT(collect(unique, {1, id, 1}), ElementsAre(1));
    EXPECT_TRUE(unique.unknown()) << id;
  }
  for (const auto id : {-1, 0, 7}) EXPECT_FALSE(unique.is_unknown(expert_id{id})) << id;
  (void)collect(unique, {0, 1});
  EXPECT_FALSE(unique.unknown()) << "of the last collect";
}

// Hazards 5 and 6: duplicate ids, and ids that would wrap.
TEST(unique_ids, ids_outside_the_layer_are_dropped_and_counted) {
  unique_ids unique(8, 16);
  EXPECT_THAT(collect(unique, {-1, 3, 8, lowest, highest, 3, -1, 7}), ElementsAre(3, 7));
  EXPECT_EQ(unique.ignored(), 5U);
  EXPECT_TRUE(unique.repeated());
  EXPECT_EQ(unique.place_of(7_expert), 1U);
  for (const auto id : {-1, 8, lowest, highest, 5})
    EXPECT_FALSE(unique.contains(expert_id{id})) << id;
  EXPECT_THAT(collect(unique, {-1, -1}), IsEmpty());
  EXPECT_FALSE(unique.repeated());
  EXPECT_THAT(collect(unique, {}), IsEmpty());
  EXPECT_EQ(unique.ignored(), 0U);
}

TEST(unique_ids, gives_the_order_of_last_appearance) {
  unique_ids unique(8, 16);
  const std::vector<std::int32_t> ids{4, 2, -1, 4, 6, 2, 9};
  ASSERT_THAT(collect(unique, ids), ElementsAre(4, 2, 6));
  EXPECT_THAT(last_order(unique, ids, 3), ElementsAre(0, 2, 1));
}

TEST(unique_ids, visits_do_not_see_each_other) {
  unique_ids unique(8, 16);
  support::random_source random(3);
  for (int visit = 0; visit < 2000; ++visit) {
    std::vector<std::int32_t> ids(random.below(16));
    for (auto& id : ids) id = random.id_below(11) - 1;
    std::vector<std::int32_t> expected;
    for (const auto id : ids)
      if (id >= 0 && id < 8 && std::ranges::find(expected, id) == expected.end())
        expected.push_back(id);
    ASSERT_THAT(collect(unique, ids), testing::ElementsAreArray(expected));
  }
}

TEST(unique_ids, survives_the_wrap_around_of_its_stamps) {
  constexpr std::size_t experts = std::size_t{1} << 24U;  // 255 visits per round
  unique_ids unique(experts, 4);
  for (std::int32_t visit = 0; visit < 600; ++visit) {
    ASSERT_THAT(collect(unique, {500, visit % 3, 500}), ElementsAre(500, visit % 3)) << visit;
    ASSERT_FALSE(unique.contains(expert_id{(visit + 1) % 3})) << visit;
    ASSERT_FALSE(unique.contains(501_expert)) << visit;
  }
}

}  // namespace
}  // namespace hotset::unique_ids_test
