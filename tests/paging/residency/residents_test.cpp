// SPDX-License-Identifier: Apache-2.0
#include "hotset/paging/residency/residents.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "random_source.hpp"

namespace hotset::residents_test {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

const geometry shape{.layers = 3, .experts = 8, .top_k = 2, .expert_bytes = {100, 200, 300}};

residents shared(std::int64_t slots) {
  return residents(pool_layout::shared(shape, slots).value());
}
residents by_precision() {
  geometry two{.layers = 1, .experts = 4, .top_k = 1, .expert_bytes = {100}};
  two.lower_precisions = {{25}};
  const std::vector<std::int64_t> slots{2, 3};
  return residents(pool_layout::shared_by_precision(two, slots).value());
}

TEST(residents, a_copy_holds_its_slot_from_the_reservation_on_and_its_key_from_then_on) {
  auto r = shared(4);
  const auto f = r.reserve_free({1_layer, 5_expert}, 0_pool);
  EXPECT_EQ(f.victim, no_key);
  EXPECT_EQ(r.free_count(0_pool), 3U);
  EXPECT_EQ(r.locate({1_layer, 5_expert}), no_slot) << "reserved, and not held";
  r.hold(f);
  EXPECT_EQ(r.locate({1_layer, 5_expert}), f.slot);
  EXPECT_EQ(r.row(1_layer)[5], f.slot);
  EXPECT_EQ(r.pool(0_pool).resident_bytes, 200U);
  EXPECT_EQ(r.pool(0_pool).evictable, 1U);
}

TEST(residents, an_awaited_copy_is_in_no_row_until_it_arrives) {
  auto r = shared(4);
  auto f = r.reserve_free({0_layer, 1_expert}, 0_pool);
  f.speculative = true;
  r.await(f);
  EXPECT_EQ(r.locate({0_layer, 1_expert}), f.slot);
  EXPECT_EQ(r.row(0_layer)[1], no_slot);
  EXPECT_FALSE(r.is_evictable(f.slot));
  EXPECT_EQ(r.filling(), 1U);
  EXPECT_EQ(r.unused_prefetches(), 1U);
  EXPECT_FALSE(r.awaits(f.slot, f.generation + 1));
  ASSERT_TRUE(r.awaits(f.slot, f.generation));
  r.arrive(f.slot);
  EXPECT_EQ(r.row(0_layer)[1], f.slot);
  EXPECT_EQ(r.filling(), 0U);
  EXPECT_TRUE(r.settle_prefetch(f.slot));
  EXPECT_FALSE(r.settle_prefetch(f.slot)) << "once";
}

TEST(residents, a_victim_comes_back_as_it_was_and_a_spoilt_slot_under_a_number_of_its_own) {
  auto r = shared(1 + 1);
  const auto first = r.reserve_free({0_layer, 0_expert}, 0_pool);
  r.hold(first);
  const auto second = r.reserve_victim({2_layer, 7_expert}, first.slot);
  EXPECT_EQ(second.victim, (expert_key{0_layer, 0_expert}));
  EXPECT_NE(second.generation, first.generation);
  EXPECT_EQ(r.row(0_layer)[0], no_slot) << "no reader learns of it any more";
  r.give_back(second);
  EXPECT_EQ(r.row(0_layer)[0], first.slot);
  EXPECT_EQ(r[first.slot].generation, first.generation) << "the end of its own copy still counts";

  const auto third = r.reserve_victim({2_layer, 7_expert}, first.slot);
  EXPECT_NE(third.generation, second.generation);
  r.vacate(first.slot);
  r.give_back(first.slot);
  r.spoil(third);
  EXPECT_EQ(r[first.slot].generation, third.generation);
  EXPECT_EQ(r.free_count(0_pool), 2U);
  EXPECT_EQ(r.pool(0_pool).resident_bytes, 0U);
}

TEST(residents, copies_that_are_held_together_may_be_evicted_whatever_became_of_their_victims) {
  auto r = shared(3);
  std::vector<slot_id> slots;
  for (const auto e : {0_expert, 1_expert, 2_expert}) {
    const auto f = r.reserve_free({0_layer, e}, 0_pool);
    r.hold(f);
    slots.push_back(f.slot);
  }
  std::vector<fill> fills;
  for (std::size_t i = 0; i < 3; ++i)
    fills.push_back(r.reserve_victim({1_layer, static_cast<expert_id>(5 - i)}, slots[i]));
  (void)r.pin(slots[1]);
  r.lose_victim(slots[2]);  // its copy has failed
  std::vector<expert_key> lost;
  EXPECT_EQ(r.hold(1_layer, 0_pool, fills, 3, [&](expert_key key) { lost.push_back(key); }), 200U);
  EXPECT_THAT(lost, ElementsAre(expert_key{0_layer, 0_expert}, expert_key{0_layer, 1_expert},
                                expert_key{0_layer, 2_expert}));
  for (const auto slot : slots) {
    EXPECT_TRUE(r.evictable().test(slot));
    EXPECT_EQ(r[slot].state, slot_state::resident);
    EXPECT_EQ(r[slot].pins, 0U);
  }
  EXPECT_EQ(r.pool(0_pool).evictable, 3U);
  EXPECT_EQ(r.pool(0_pool).resident_bytes, 600U);
  EXPECT_EQ(r.row(1_layer)[5], slots[0]);
  EXPECT_EQ(r.row(1_layer)[3], slots[2]);
  EXPECT_EQ(r.row(0_layer)[1], no_slot);
}

TEST(residents, a_pin_is_of_what_the_slot_held_when_it_was_made) {
  auto r = shared(2);
  const auto first = r.reserve_free({0_layer, 0_expert}, 0_pool);
  r.hold(first);
  const auto pinned = r.pin(first.slot);
  EXPECT_FALSE(r.evictable().test(first.slot));
  EXPECT_TRUE(r.is_any_pinned());
  r.drop_pins(first.slot);  // its copy has failed
  r.vacate(first.slot);
  r.give_back(first.slot);
  const auto second = r.reserve_free({0_layer, 1_expert}, 0_pool);
  ASSERT_EQ(second.slot, first.slot);
  r.hold(second);
  (void)r.pin(second.slot);
  r.unpin(pinned, 7);
  EXPECT_FALSE(r.evictable().test(second.slot)) << "the other visit's pin ended nothing";
  EXPECT_EQ(r[second.slot].last_reader, no_ticket);
}

std::vector<slot_id> evictable_of(const residents& r) {
  std::vector<slot_id> out;
  for (auto s = r.evictable().next(); s != no_slot; s = r.evictable().next(s + 1)) out.push_back(s);
  return out;
}

TEST(residents, masks_end_in_the_reverse_order_of_their_beginnings) {
  auto r = shared(4);
  for (const auto e : each<expert_id>(3)) r.hold(r.reserve_free({0_layer, e}, 0_pool));
  const std::vector<slot_id> own{0_slot, no_slot, 3_slot};
  {
    const residents::mask outer(r, own);
    EXPECT_THAT(outer.slots(), ElementsAre(0)) << "slot 3 is free: nobody could evict it";
    {
      residents::mask inner(r);
      inner.add(0_slot);
      inner.add(2_slot);
      EXPECT_THAT(inner.slots(), ElementsAre(2));
      EXPECT_THAT(evictable_of(r), ElementsAre(1));
    }
    EXPECT_THAT(evictable_of(r), ElementsAre(1, 2));
    EXPECT_TRUE(r.is_evictable(0_slot)) << "masked, and read by nobody";
  }
  EXPECT_THAT(evictable_of(r), ElementsAre(0, 1, 2));
  EXPECT_EQ(r.pool(0_pool).evictable, 3U) << "a mask is no change";
}

TEST(residents, a_slot_knows_its_pool_and_a_pool_its_precision) {
  auto r = by_precision();
  const auto high = r.reserve_free({0_layer, 0_expert}, 0_pool);
  const auto low = r.reserve_free({0_layer, 1_expert}, 1_pool);
  EXPECT_EQ(high.precision, 0);
  EXPECT_EQ(low.precision, 1);
  r.hold(high);
  r.hold(low);
  EXPECT_EQ(r.precision_of(low.slot), 1);
  EXPECT_EQ(r.bytes_in(low.slot), 25U);
  EXPECT_EQ(r.bytes_in(high.slot), 100U);
  EXPECT_EQ(r.pool(1_pool).resident_bytes, 25U);
}

TEST(residents, spare_slots_change_their_pool_within_a_size_class) {
  const geometry even{.layers = 2, .experts = 4, .top_k = 1, .expert_bytes = {10}};
  residents r(pool_layout::per_layer(even, 3).value());
  ASSERT_EQ(r.claim(1_pool, 4), status::exceeds_memory);
  r.give_up(0_pool, 2);
  EXPECT_EQ(r.pool(0_pool).capacity, 1);
  ASSERT_EQ(r.claim(1_pool, 4), status::ok);
  std::set<slot_id> of_second;
  while (r.free_count(1_pool) != 0) {
    const auto f = r.reserve_free({1_layer, static_cast<expert_id>(of_second.size())}, 1_pool);
    EXPECT_EQ(r.pool_of(f.slot), 1);
    of_second.insert(f.slot);
  }
  EXPECT_EQ(of_second.size(), 4U);
  EXPECT_NE(*of_second.begin(), 3) << "one of them was the other pool's";
}

TEST(residents, spare_slots_are_gathered_at_the_end_and_what_was_there_moves) {
  const geometry even{.layers = 2, .experts = 4, .top_k = 1, .expert_bytes = {10}};
  residents r(pool_layout::per_layer(even, 3).value());
  for (const auto e : each<expert_id>(3)) r.hold(r.reserve_free({1_layer, e}, 1_pool));
  r.give_up(0_pool, 2);
  std::vector<slot_id> target(r.slots());
  r.gather_spare(target);
  std::map<slot_id, slot_id> moves;
  for (std::size_t s = 0; s < target.size(); ++s)
    if (target[s] != no_slot) moves[static_cast<slot_id>(s)] = target[s];
  ASSERT_EQ(moves.size(), 2U);
  for (const auto& [from, to] : moves) {
    EXPECT_GE(from, 4);
    EXPECT_LT(to, 4);
    const auto key = r[from].key;
    r.move(from, to);
    EXPECT_EQ(r.row(1_layer)[index_of(key.expert)], to);
    EXPECT_EQ(r.pool_of(to), 1);
    EXPECT_EQ(r[from].state, slot_state::free);
  }
  EXPECT_EQ(r.pool(1_pool).evictable, 3U);
  EXPECT_EQ(r.pool(1_pool).resident_bytes, 30U);
}

// Against a map that is kept by hand.
class residents_model : public testing::TestWithParam<std::uint64_t> {};

TEST_P(residents_model, agree_with_a_map) {
  support::random_source random(GetParam());
  auto r = shared(6);
  std::map<slot_id, expert_key> held;
  std::map<slot_id, std::vector<slot_pin>> pins;
  for (int turn = 0; turn < 4000; ++turn) {
    const expert_key key{layer_id{random.id_below(3)}, expert_id{random.id_below(8)}};
    const auto at = std::ranges::find(held, key, &std::pair<const slot_id, expert_key>::second);
    if (at != held.end()) {
      const auto slot = at->first;
      if (random.one_in(3)) {
        pins[slot].push_back(r.pin(slot));
      } else if (!pins[slot].empty()) {
        r.unpin(pins[slot].back(), no_ticket);
        pins[slot].pop_back();
      } else {
        r.vacate(slot);
        r.give_back(slot);
        held.erase(slot);
      }
    } else if (r.free_count(0_pool) != 0) {
      const auto f = r.reserve_free(key, 0_pool);
      random.one_in(4) ? r.give_back(f) : (r.hold(f), void(held[f.slot] = key));
    } else if (const auto victim = r.evictable().next(slot_id{random.id_below(6)});
               victim != no_slot) {
      const auto f = r.reserve_victim(key, victim);
      random.one_in(4) ? r.give_back(f) : (r.hold(f), void(held[f.slot] = key));
    }
    std::uint64_t bytes = 0;
    std::size_t evictable = 0;
    for (const auto& [slot, holds] : held) {
      bytes += shape.bytes_of(holds.layer);
      evictable += pins[slot].empty() ? 1U : 0U;
      ASSERT_EQ(r.row(holds.layer)[index_of(holds.expert)], slot);
      ASSERT_EQ(r.evictable().test(slot), pins[slot].empty());
    }
    ASSERT_EQ(r.pool(0_pool).resident_bytes, bytes);
    ASSERT_EQ(r.pool(0_pool).evictable, evictable);
    ASSERT_EQ(r.free_count(0_pool), 6 - held.size());
    std::size_t named = 0;
    for (const auto l : each<layer_id>(3))
      for (const auto slot : r.row(l)) named += slot != no_slot ? 1U : 0U;
    ASSERT_EQ(named, held.size());
  }
}

INSTANTIATE_TEST_SUITE_P(seeds, residents_model,
                         testing::Range(std::uint64_t{1}, std::uint64_t{6}));

}  // namespace
}  // namespace hotset::residents_test
