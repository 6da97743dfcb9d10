// SPDX-License-Identifier: Apache-2.0
#include "hotset/adapters/expert_redirect.hpp"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reroute_samples.hpp"

namespace hotset {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using ids = std::vector<expert_id>;

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

TEST(expert_redirect, what_is_refused_changes_nothing) {
  auto map = small();
  ASSERT_EQ(map.assign(1, ids{2}), status::ok);
  const ids before(map.rows().begin(), map.rows().end());
  for (const ids& bad : {ids{-1}, ids{8}, ids{4, 5, 4}, ids{0, 1, 2, 3}})
    EXPECT_EQ(map.assign(1, bad), status::invalid_argument);
  for (const auto adapter : {-1, 2})
    EXPECT_EQ(map.assign(adapter, ids{1}), status::invalid_argument);
  EXPECT_EQ(ids(map.rows().begin(), map.rows().end()), before);
}

TEST(expert_redirect, is_the_map_of_figure_4) {
  const auto map = reroute_samples::figure_4_map();
  EXPECT_EQ(map.virtual_experts(), 80);
  for (expert_id e = 0; e < 64; ++e) {
    const auto first = e == 3 ? 64 : e == 14 ? 65 : e == 47 ? 66 : e;
    EXPECT_EQ(map.row(0)[static_cast<std::size_t>(e)], first);
  }
  const std::vector<std::pair<expert_id, expert_id>> second = {
      {5, 72}, {13, 73}, {14, 74}, {27, 75}, {35, 76}, {57, 77}, {59, 78}, {4, 4}, {58, 58}};
  for (const auto& [e, place] : second) EXPECT_EQ(map.row(1)[static_cast<std::size_t>(e)], place);
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
    return made ? std::string("accepted") : made.reason().message;
  };
  EXPECT_THAT(reason({0, 1, 0}), HasSubstr("experts = 0"));
  EXPECT_THAT(reason({4, -1, 0}), HasSubstr("adapters = -1"));
  EXPECT_THAT(reason({4, 1, 5}), HasSubstr("most_tuned = 5, accepted: 0..4"));
  EXPECT_THAT(reason({4, 1, -1}), HasSubstr("most_tuned = -1"));
  EXPECT_THAT(reason({1 << 14, 1 << 14, 1}), HasSubstr("at most 268435456"));
}

}  // namespace
}  // namespace hotset
