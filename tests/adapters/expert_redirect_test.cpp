// SPDX-License-Identifier: Apache-2.0
#include "hotset/adapters/expert_redirect.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "random_source.hpp"
#include "reroute_samples.hpp"

namespace hotset::expert_redirect_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using ids = std::vector<std::int32_t>;

std::vector<expert_id> rows_of(const expert_redirect& map) {
  return {map.rows().begin(), map.rows().end()};
}
expert_redirect small() { return *expert_redirect::create({8, 2, 3}); }

TEST(expert_redirect, places_follow_the_base_model_adapter_by_adapter) {
  const auto map = small();
  EXPECT_EQ(map.first_place(0), 8);
  EXPECT_EQ(map.first_place(1), 11);
  EXPECT_EQ(map.virtual_experts(), 14);
  EXPECT_EQ(map.rows().size(), 16U);
}

TEST(expert_redirect, redirects_nothing_at_first) {
  const auto map = small();
  EXPECT_THAT(map.row(0), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(map.row(1), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST(expert_redirect, a_tuned_expert_has_a_place_by_ascending_expert_whatever_the_order_given) {
  auto map = small();
  ASSERT_EQ(map.assign(1, ids{6, 0, 3}), status::ok);
  EXPECT_THAT(map.row(1), ElementsAre(11, 1, 2, 12, 4, 5, 13, 7));
  EXPECT_THAT(map.row(0), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST(expert_redirect, another_assignment_replaces_the_first) {
  auto map = small();
  ASSERT_EQ(map.assign(0, ids{6, 0, 3}), status::ok);
  ASSERT_EQ(map.assign(0, ids{7}), status::ok);
  EXPECT_THAT(map.row(0), ElementsAre(0, 1, 2, 3, 4, 5, 6, 8));
  ASSERT_EQ(map.clear(0), status::ok);
  EXPECT_THAT(map.row(0), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST(expert_redirect, a_refused_assignment_changes_nothing) {
  auto map = small();
  ASSERT_EQ(map.assign(1, ids{2}), status::ok);
  const auto before = rows_of(map);
  for (const ids& bad : {ids{-1}, ids{8}, ids{4, 5, 4}, ids{0, 1, 2, 3}})
    EXPECT_EQ(map.assign(1, bad), status::invalid_argument);
  for (const auto adapter : {-1, 2})
    EXPECT_EQ(map.assign(adapter, ids{1}), status::invalid_argument);
  EXPECT_EQ(rows_of(map), before);
}

// The first line of the figure: which expert lies at which place.
TEST(expert_redirect, places_of_figure_4_agree_with_its_tensor) {
  const auto map = reroute_samples::figure_4_map();
  per_expert<expert_id> tensor(std::vector<expert_id>(80, no_expert));
  for (const auto e : each<expert_id>(64)) tensor[e] = e;
  for (std::int32_t a = 0; a < 2; ++a)
    for (const auto e : each<expert_id>(64)) tensor[map.row(a)[index_of(e)]] = e;
  EXPECT_THAT(std::span(tensor.values()).subspan(64), ElementsAre(3, 14, 47, -1, -1, -1, -1, -1,  //
                                                                  5, 13, 14, 27, 35, 57, 59, -1));
}

TEST(expert_redirect, a_stride_leaves_room_between_adapters) {
  auto map = *expert_redirect::create({.experts = 8, .adapters = 3, .most_tuned = 3, .stride = 4});
  for (std::int32_t a = 0; a < 3; ++a) EXPECT_EQ(map.first_place(a), 8 + 4 * a);
  EXPECT_EQ(map.virtual_experts(), 20);
  ASSERT_EQ(map.assign(2, ids{6, 0, 3}), status::ok);
  EXPECT_THAT(map.row(2), ElementsAre(16, 1, 2, 17, 4, 5, 18, 7));
  EXPECT_EQ(map.assign(1, ids{0, 1, 2, 3}), status::invalid_argument) << "most_tuned stays 3";
}

TEST(expert_redirect, a_strided_map_takes_no_place_from_its_caller) {
  auto map = small();
  EXPECT_EQ(map.assign(0, ids{1}, 8_expert), status::invalid_argument);
  EXPECT_EQ(map.assign(0, ids{}, 8_expert), status::invalid_argument);
  EXPECT_THAT(map.row(0), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

expert_redirect small_and_dense() {
  return *expert_redirect::create({.experts = 8,
                                   .adapters = 3,
                                   .most_tuned = 3,
                                   .placement = adapter_placement::dense,
                                   .places = 7});
}

TEST(expert_redirect, a_dense_map_starts_at_the_given_place) {
  auto map = small_and_dense();
  EXPECT_EQ(map.virtual_experts(), 15);
  EXPECT_EQ(map.first_place(1), no_expert);
  ASSERT_EQ(map.assign(1, ids{6, 0, 3}, 12_expert), status::ok);
  ASSERT_EQ(map.assign(0, ids{0, 7}, 10_expert), status::ok);
  EXPECT_THAT(map.row(1), ElementsAre(12, 1, 2, 13, 4, 5, 14, 7));
  EXPECT_THAT(map.row(0), ElementsAre(10, 1, 2, 3, 4, 5, 6, 11));
  EXPECT_EQ(map.first_place(0), 10);
  ASSERT_EQ(map.clear(1), status::ok);
  EXPECT_EQ(map.first_place(1), no_expert);
  EXPECT_THAT(map.row(1), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST(expert_redirect, dense_places_are_in_range_and_of_one_adapter) {
  auto map = small_and_dense();
  ASSERT_EQ(map.assign(0, ids{0, 1}, 10_expert), status::ok);  // experts 10 and 11
  const auto before = rows_of(map);
  const auto refused = [&](const ids& tuned, expert_id first) {
    return map.assign(1, tuned, first) == status::invalid_argument;
  };
  for (const auto first : {7, 14, 15, -1, 0, std::numeric_limits<std::int32_t>::max(),
                           std::numeric_limits<std::int32_t>::min()})
    EXPECT_TRUE(refused({2, 3}, expert_id{first})) << first;
  for (const auto first : {9, 10, 11}) EXPECT_TRUE(refused({2, 3}, expert_id{first})) << first;
  EXPECT_TRUE(refused({2, 3, 4}, 8_expert));
  EXPECT_TRUE(refused({2}, 11_expert));
  EXPECT_TRUE(refused({2, 2}, 8_expert));
  EXPECT_TRUE(refused({8}, 8_expert));
  EXPECT_TRUE(refused({0, 1, 2, 3}, 8_expert));
  for (const auto adapter : {-1, 3})
    EXPECT_EQ(map.assign(adapter, ids{1}, 8_expert), status::invalid_argument);
  EXPECT_EQ(map.assign(1, ids{1}), status::invalid_argument) << "no place was said";
  EXPECT_EQ(rows_of(map), before);
  EXPECT_EQ(map.first_place(1), no_expert);
  EXPECT_FALSE(refused({2, 3}, 8_expert));
  EXPECT_FALSE(refused({2, 3, 5}, 12_expert)) << "those at 8 and 9 are given up";
}

TEST(expert_redirect, an_adapter_may_move_over_its_own_dense_places) {
  auto map = small_and_dense();
  ASSERT_EQ(map.assign(0, ids{0, 1, 2}, 8_expert), status::ok);
  ASSERT_EQ(map.assign(0, ids{0, 1, 2}, 9_expert), status::ok);
  EXPECT_THAT(map.row(0), ElementsAre(9, 10, 11, 3, 4, 5, 6, 7));
  ASSERT_EQ(map.assign(0, {}, expert_id{-5}), status::ok) << "none is at no place";
  EXPECT_EQ(map.first_place(0), no_expert);
}

TEST(expert_redirect, agrees_with_brute_force_in_any_order_of_assignments) {
  support::random_source random(0xde7);
  for (int round = 0; round < 150; ++round) {
    const auto experts = 1 + random.id_below(20);
    const auto adapters = random.id_below(6);
    const auto most_tuned = random.id_below(experts + 1);
    const auto places = 1 + random.id_below(40);
    auto map = *expert_redirect::create({.experts = experts,
                                         .adapters = adapters,
                                         .most_tuned = most_tuned,
                                         .placement = adapter_placement::dense,
                                         .places = places});
    // [adapter][expert]: place of a tuned expert, or none.
    using row = std::vector<std::optional<expert_id>>;
    std::vector<row> naive(static_cast<std::size_t>(adapters),
                           row(static_cast<std::size_t>(experts)));
    for (int n = 0; n < 200; ++n) {
      const auto adapter = random.id_below(adapters + 2) - 1;
      const expert_id first{random.one_in(16) ? random.id_below(100) - 50
                                              : experts + random.id_below(places + 1)};
      ids tuned;
      for (auto count = random.id_below(random.one_in(8) ? 21 : 4); count-- > 0;)
        tuned.push_back(random.id_below(experts));
      bool is_good = adapter >= 0 && adapter < adapters &&
                     tuned.size() <= static_cast<std::size_t>(most_tuned);
      row wanted(static_cast<std::size_t>(experts));
      auto place = first;
      for (const auto e : each<expert_id>(experts)) {
        const auto named = std::count(tuned.begin(), tuned.end(), e);
        is_good = is_good && named < 2;
        if (named == 0) continue;
        for (std::size_t other = 0; other < naive.size(); ++other)
          for (const auto& taken : naive[other])
            is_good = is_good && (static_cast<std::int32_t>(other) == adapter || taken != place);
        is_good = is_good && place >= experts && place < experts + places;
        wanted[index_of(e)] = place++;
      }
      ASSERT_EQ(map.assign(adapter, tuned, first) == status::ok, is_good)
          << "round " << round << ", assignment " << n;
      if (is_good) naive[static_cast<std::size_t>(adapter)] = wanted;
      for (std::int32_t a = 0; a < adapters; ++a)
        for (const auto e : each<expert_id>(experts))
          ASSERT_EQ(map.row(a)[index_of(e)],
                    naive[static_cast<std::size_t>(a)][index_of(e)].value_or(e));
    }
  }
}

TEST(expert_redirect, may_be_of_no_adapter) {
  const auto map = expert_redirect::create({4, 0, 0});
  ASSERT_TRUE(map);
  EXPECT_TRUE(map->rows().empty());
  EXPECT_EQ(map->virtual_experts(), 4);
}

TEST(expert_redirect, refuses_a_shape_that_cannot_be_and_names_the_number) {
  const auto reason = [](expert_redirect::config setup) {
    const auto made = expert_redirect::create(setup);
    return made ? std::string("accepted") : made.error().message;
  };
  EXPECT_THAT(reason({0, 1, 0}), HasSubstr("experts = 0"));
  EXPECT_THAT(reason({4, -1, 0}), HasSubstr("adapters = -1"));
  EXPECT_THAT(reason({4, 1, 5}), HasSubstr("most_tuned = 5, accepted: 0..4"));
  EXPECT_THAT(reason({4, 1, -1}), HasSubstr("most_tuned = -1"));
  EXPECT_THAT(reason({1 << 14, 1 << 14, 1}), HasSubstr("at most 268435456"));
  EXPECT_THAT(reason({8, 2, 3, 2}), HasSubstr("stride = 2, accepted: 0, or most_tuned (3)"));
  EXPECT_THAT(reason({8, 2, 3, -1}), HasSubstr("stride = -1"));
  constexpr auto most = std::numeric_limits<std::int32_t>::max();
  EXPECT_THAT(reason({8, 2, 3, most}), HasSubstr("virtual experts = 4294967302"));
  EXPECT_THAT(reason({1, 1 << 27, 1, most}), HasSubstr("virtual experts = "));
  const auto dense = adapter_placement::dense;
  EXPECT_THAT(reason({8, 2, 3, 4, dense}), HasSubstr("stride = 4, accepted: 0 if"));
  EXPECT_THAT(reason({8, 2, 3, 0, dense, -1}), HasSubstr("places = -1"));
  EXPECT_THAT(reason({8, 2, 3, 0, dense, most}), HasSubstr("virtual experts = 2147483655"));
  EXPECT_THAT(reason({8, 2, 3, 0, adapter_placement::strided, 6}),
              HasSubstr("places = 6, accepted: 0 if placement is strided"));
  EXPECT_EQ(reason({8, 2, 3, 0, dense, 1}), "accepted");
}

}  // namespace
}  // namespace hotset::expert_redirect_test
