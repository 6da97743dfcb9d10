// SPDX-License-Identifier: Apache-2.0
#include "hotset/predict/maps/token_places.hpp"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "random_source.hpp"

namespace hotset::token_places_test {
namespace {

constexpr auto none = token_places::none;

TEST(token_places, the_oldest_place_of_a_token_comes_first) {
  token_places places(4);
  EXPECT_EQ(places.find(7), none);
  places.add(2, 7);
  places.add(0, 9);
  places.add(1, 7);
  const auto seven = places.find(7);
  ASSERT_NE(seven, none);
  EXPECT_EQ(places.at(seven).token, 7);
  EXPECT_EQ(places.at(seven).first, 2U);
  EXPECT_EQ(places.at(seven).count, 2U);
  EXPECT_EQ(places.group_of(1), seven);
  EXPECT_NE(places.group_of(0), seven);
  places.remove(2);
  EXPECT_EQ(places.at(places.find(7)).first, 1U);
  places.remove(1);
  EXPECT_EQ(places.find(7), none);
  EXPECT_EQ(places.group_of(1), none);
  places.remove(1);  // nobody's
  EXPECT_EQ(places.at(places.find(9)).count, 1U);
}

TEST(token_places, cleared_it_is_as_new) {
  token_places places(2);
  places.add(0, 1);
  places.add(1, 2);
  places.clear();
  EXPECT_EQ(places.find(1), none);
  places.add(0, 3);
  places.add(1, 4);
  EXPECT_EQ(places.at(places.find(4)).first, 1U);
}

TEST(token_places, any_id_is_a_token) {
  token_places places(3);
  places.add(0, std::numeric_limits<std::int32_t>::max());
  places.add(1, std::numeric_limits<std::int32_t>::min());
  places.add(2, -1);
  EXPECT_EQ(places.at(places.find(-1)).first, 2U);
  EXPECT_EQ(places.at(places.find(std::numeric_limits<std::int32_t>::min())).first, 1U);
}

TEST(token_places, agrees_with_a_map_of_queues) {
  for (const std::uint32_t size : {1U, 3U, 16U, 50U}) {
    support::random_source random(size);
    token_places places(size);
    std::map<std::int32_t, std::deque<std::uint32_t>> model;
    std::vector<std::int32_t> holds(size, -1);
    for (int n = 0; n < 20000; ++n) {
      const auto place = static_cast<std::uint32_t>(random.below(size));
      if (holds[place] >= 0) {
        auto& queue = model[holds[place]];
        queue.erase(std::find(queue.begin(), queue.end(), place));
        places.remove(place);
        holds[place] = -1;
      } else {
        // Multiples of a power of two, so that hashes meet.
        holds[place] = static_cast<std::int32_t>(random.below(12)) << (random.below(3) * 8);
        model[holds[place]].push_back(place);
        places.add(place, holds[place]);
      }
      std::set<std::uint32_t> groups;
      for (const auto& [token, queue] : model) {
        const auto found = places.find(token);
        if (queue.empty()) {
          ASSERT_EQ(found, none);
          continue;
        }
        ASSERT_LT(found, size);
        ASSERT_TRUE(groups.insert(found).second);
        ASSERT_EQ(places.at(found).token, token);
        ASSERT_EQ(places.at(found).count, queue.size());
        ASSERT_EQ(places.at(found).first, queue.front());
        ASSERT_EQ(places.at(found).last, queue.back());
      }
    }
  }
}

}  // namespace
}  // namespace hotset::token_places_test
