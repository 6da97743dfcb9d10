// SPDX-License-Identifier: Apache-2.0
#include "hotset/adapters/dense_places.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "random_source.hpp"

namespace hotset::dense_places_test {
namespace {

using testing::HasSubstr;

constexpr auto most = std::numeric_limits<std::int32_t>::max();

dense_places ten() { return *dense_places::create({.first = 64_expert, .places = 10}); }

TEST(dense_places, gives_the_first_run_that_is_long_enough) {
  auto places = ten();
  EXPECT_EQ(places.take(3), 64);
  EXPECT_EQ(places.take(4), 67);
  EXPECT_EQ(places.take(2), 71);
  EXPECT_EQ(places.give(64_expert, 3), status::ok);
  EXPECT_EQ(places.give(71_expert, 2), status::ok);
  EXPECT_EQ(places.take(1), 64);
  EXPECT_EQ(places.take(3), 71);
  EXPECT_EQ(places.take(2), 65);
  EXPECT_EQ(places.free_places(), 0);
}

TEST(dense_places, neighbours_that_are_given_back_join) {
  auto places = ten();
  for (const auto first : {64, 69}) EXPECT_EQ(places.take(5), first);
  EXPECT_EQ(places.give(69_expert, 5), status::ok);
  EXPECT_EQ(places.take(6), no_expert);
  EXPECT_EQ(places.give(64_expert, 5), status::ok);
  EXPECT_EQ(places.take(10), 64);
}

TEST(dense_places, there_may_be_enough_places_and_no_run) {
  auto places = ten();
  for (int n = 0; n < 5; ++n) EXPECT_EQ(places.take(2), 64 + 2 * n);
  for (const auto first : {64_expert, 68_expert, 72_expert})
    EXPECT_EQ(places.give(first, 2), status::ok);
  EXPECT_EQ(places.free_places(), 6);
  EXPECT_EQ(places.take(3), no_expert);
  EXPECT_EQ(places.free_places(), 6);
}

TEST(dense_places, what_cannot_be_is_no_run) {
  auto places = ten();
  for (const auto count : {0, -1, 11, most, std::numeric_limits<std::int32_t>::min()})
    EXPECT_EQ(places.take(count), no_expert) << count;
  EXPECT_EQ(places.free_places(), 10);
}

TEST(dense_places, only_a_whole_run_that_was_taken_can_be_given_back) {
  auto places = ten();
  ASSERT_EQ(places.take(3), 64);
  ASSERT_EQ(places.take(2), 67);
  for (const auto& [first, count] :
       std::vector<std::pair<std::int32_t, std::int32_t>>{{64, 2},
                                                          {65, 2},
                                                          {64, 4},
                                                          {64, 5},
                                                          {66, 1},
                                                          {67, 1},
                                                          {67, 3},
                                                          {69, 1},
                                                          {63, 1},
                                                          {64, 0},
                                                          {64, -1},
                                                          {64, most},
                                                          {most, 1},
                                                          {-1, 1},
                                                          {std::numeric_limits<int>::min(), 3}})
    EXPECT_EQ(places.give(expert_id{first}, count), status::invalid_argument)
        << first << ' ' << count;
  EXPECT_EQ(places.free_places(), 5);
  EXPECT_EQ(places.give(67_expert, 2), status::ok);
  EXPECT_EQ(places.give(67_expert, 2), status::invalid_argument) << "twice";
  EXPECT_EQ(places.give(64_expert, 3), status::ok);
}

TEST(dense_places, the_last_run_ends_where_the_places_end) {
  auto places = ten();
  ASSERT_EQ(places.take(8), 64);
  ASSERT_EQ(places.take(2), 72);
  EXPECT_EQ(places.give(72_expert, 3), status::invalid_argument);
  EXPECT_EQ(places.give(72_expert, 2), status::ok);
}

TEST(dense_places, may_be_none) {
  auto places = *dense_places::create({.first = 64_expert, .places = 0});
  EXPECT_EQ(places.take(1), no_expert);
  EXPECT_EQ(places.give(64_expert, 1), status::invalid_argument);
}

TEST(dense_places, refuses_a_shape_that_cannot_be_and_names_the_number) {
  const auto reason = [](dense_places::config setup) {
    const auto made = dense_places::create(setup);
    return made ? std::string("accepted") : made.error().message;
  };
  EXPECT_THAT(reason({expert_id{-1}, 4}), HasSubstr("first = -1"));
  EXPECT_THAT(reason({expert_id{most}, 0}), HasSubstr("first = 2147483647"));
  EXPECT_THAT(reason({4_expert, -1}), HasSubstr("places = -1"));
  EXPECT_THAT(reason({4_expert, dense_places::most_places - 3}),
              HasSubstr("places = 268435453, accepted: 0..268435452"));
}

/// Who has each place, tried one first place after the other.
struct naive_places {
  std::vector<int> owner;  // 0: nobody
  int owners = 0;

  std::optional<std::size_t> take(std::size_t count) {
    for (std::size_t first = 0; count > 0 && first + count <= owner.size(); ++first) {
      bool is_free = true;
      for (std::size_t i = 0; i < count; ++i) is_free = is_free && owner[first + i] == 0;
      if (!is_free) continue;
      ++owners;
      for (std::size_t i = 0; i < count; ++i) owner[first + i] = owners;
      return first;
    }
    return std::nullopt;
  }
  bool give(std::size_t first, std::size_t count) {
    if (count == 0 || first + count > owner.size() || owner[first] == 0) return false;
    const auto who = owner[first];
    for (std::size_t place = 0; place < owner.size(); ++place)
      if ((owner[place] == who) != (place >= first && place < first + count)) return false;
    for (std::size_t i = 0; i < count; ++i) owner[first + i] = 0;
    return true;
  }
};

TEST(dense_places, agrees_with_brute_force_while_adapters_come_and_go) {
  support::random_source random(0xde5e);
  for (int round = 0; round < 200; ++round) {
    const auto count = random.below(60);
    const expert_id first{random.id_below(100)};
    auto places = *dense_places::create({first, static_cast<std::int32_t>(count)});
    naive_places naive{std::vector<int>(count), 0};
    std::vector<std::pair<expert_id, std::int32_t>> taken;
    for (int n = 0; n < 300; ++n) {
      SCOPED_TRACE(testing::Message() << "round " << round << ", operation " << n);
      const bool is_wild = random.one_in(8);
      if (taken.empty() || random.one_in(2)) {
        const auto wanted = random.id_below(is_wild ? 70 : 9);
        const auto expected = naive.take(static_cast<std::size_t>(wanted));
        const auto at = places.take(wanted);
        ASSERT_EQ(at, expected ? first + static_cast<std::int32_t>(*expected) : no_expert);
        if (expected) taken.emplace_back(at, wanted);
      } else if (is_wild) {
        const auto at = random.id_below(70);
        const auto length = random.id_below(5);
        const bool expected =
            naive.give(static_cast<std::size_t>(at), static_cast<std::size_t>(length));
        ASSERT_EQ(places.give(first + at, length) == status::ok, expected);
        if (expected) std::erase(taken, std::pair{first + at, length});
      } else {
        const auto which = random.below(taken.size());
        const auto [at, length] = taken[which];
        ASSERT_TRUE(
            naive.give(static_cast<std::size_t>(at - first), static_cast<std::size_t>(length)));
        ASSERT_EQ(places.give(at, length), status::ok);
        taken.erase(taken.begin() + static_cast<std::ptrdiff_t>(which));
      }
      ASSERT_EQ(places.free_places(), std::count(naive.owner.begin(), naive.owner.end(), 0));
    }
  }
}

}  // namespace
}  // namespace hotset::dense_places_test
