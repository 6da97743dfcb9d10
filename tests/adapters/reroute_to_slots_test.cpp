// SPDX-License-Identifier: Apache-2.0
#include "hotset/adapters/reroute_to_slots.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/core/geometry.hpp"
#include "hotset/paging/residency/slot_map.hpp"
#include "reroute_samples.hpp"

namespace hotset::reroute_to_slots_test {
namespace {

using testing::Each;

// The tokens 2, 5 and 0 of figure 4, one of an absent adapter, and a layer of which a few experts have slots.
TEST(reroute_to_slots, is_the_slot_of_the_adapters_expert_by_hand) {
  const auto figure = reroute_samples::figure_4();
  slot_map map(geometry{.layers = 2, .experts = 80, .top_k = 6});
  const auto fill = [&](expert_id expert, slot_id slot) {
    map.place_and_publish({1_layer, expert}, slot);
  };
  fill(14_expert, 7_slot);                               // of the base model
  fill(65_expert, 3_slot);                               // 14 of adapter 0
  fill(74_expert, 0_slot);                               // 14 of adapter 1
  fill(31_expert, 12_slot);                              // of all
  map.place({1_layer, 72_expert}, 9_slot);               // on its way: no kernel may read it
  std::vector<std::int32_t> ids{31, 13, 62, 12, 34, 14,  //
                                13, 31, 14, 35, 15, 5,   //
                                15, 14, 45, -1, 64, 57,  //
                                14, -2, 31, 0,  1,  2};
  std::vector<std::int32_t> adapters{0, 1, -1, 2};
  std::vector<std::int32_t> expected{12, -1, -1, -1, -1, 3,   //
                                     -1, 12, 0,  -1, -1, -1,  //
                                     -1, 7,  -1, -1, -1, -1,  //
                                     -1, -1, -1, -1, -1, -1};
  for (auto* const each : {&ids, &adapters, &expected}) {  // four times: enough for vectors
    const auto once = *each;
    for (int n = 1; n < 4; ++n) each->insert(each->end(), once.begin(), once.end());
  }
  for (const auto level : reroute_samples::levels()) {
    std::vector<std::int32_t> out(ids.size(), -77);
    const auto done = reroute_to_slots(figure.rows(), map.row(1_layer), ids, adapters, out, level);
    EXPECT_EQ(done.code, status::ok);
    EXPECT_EQ(done.refused, 4 * 6U);
    EXPECT_EQ(out, expected);
  }
}

TEST(reroute_to_slots, equals_reroute_and_then_the_look_up) {
  support::random_source random(0x510f5);
  for (int round = 0; round < 3000; ++round) {
    const auto b = reroute_samples::random_batch(random);
    // Rows of each length up to more than there are experts of the virtual weight tensor.
    std::vector<slot_id> slots(random.below(2 * static_cast<std::size_t>(b.experts) *
                                            static_cast<std::size_t>(b.adapters + 1)));
    for (auto& slot : slots) slot = random.one_in(3) ? no_slot : slot_id{random.id_below(1000)};
    std::uint64_t refused = 0;
    std::vector<std::int32_t> expected;
    for (const auto e : reroute_samples::rerouted(b, refused))
      expected.push_back(number(is_within(e, slots.size()) ? slots.at(index_of(e)) : no_slot));
    for (const auto level : reroute_samples::levels()) {
      std::vector<std::int32_t> out(b.ids.size(), -77);
      const auto done = reroute_to_slots(b.rows(), slots, b.ids, b.adapter_of_token, out, level);
      ASSERT_EQ(done.code, status::ok);
      ASSERT_EQ(out, expected) << "round " << round << ", level " << static_cast<int>(level);
      ASSERT_EQ(done.refused, refused);
    }
  }
}

TEST(reroute_to_slots, without_slots_nothing_is_resident) {
  const auto b = reroute_samples::figure_4();
  for (const auto level : reroute_samples::levels()) {
    std::vector<std::int32_t> out(b.ids.size(), -77);
    EXPECT_EQ(reroute_to_slots(b.rows(), {}, b.ids, b.adapter_of_token, out, level).code,
              status::ok);
    EXPECT_THAT(out, Each(no_slot));
  }
}

TEST(reroute_to_slots, lengths_that_do_not_belong_together_are_refused_and_nothing_is_written) {
  const auto b = reroute_samples::figure_4();
  const std::vector<slot_id> slots(80, 1_slot);
  std::vector<std::int32_t> out(b.ids.size(), -77);
  EXPECT_EQ(
      reroute_to_slots(b.rows(), slots, b.ids, std::span(b.adapter_of_token).first(7), out).code,
      status::invalid_argument);
  EXPECT_EQ(
      reroute_to_slots(b.rows(), slots, b.ids, b.adapter_of_token, std::span(out).first(6)).code,
      status::invalid_argument);
  EXPECT_THAT(out, Each(-77));
}

}  // namespace
}  // namespace hotset::reroute_to_slots_test
