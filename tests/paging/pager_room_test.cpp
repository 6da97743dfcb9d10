// SPDX-License-Identifier: Apache-2.0
// Pins, quotas, trim, invalidation, size classes: changes of the available room.

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pager_walk.hpp"
#include "single_uses.hpp"

namespace hotset::pager_room_test {
namespace {

using support::pager_walk;
using testing::ElementsAre;
using testing::IsEmpty;

const geometry shape{
    .layers = 2, .experts = 8, .top_k = 2, .max_tokens_per_visit = 4, .expert_bytes = {10}};

pool_layout shared(std::int64_t slots) { return pool_layout::shared(shape, slots).value(); }
pool_layout per_layer(std::int64_t a, std::int64_t b) {
  return pool_layout::per_layer(shape, std::array<std::int64_t, 2>{a, b}).value();
}

TEST(pager_pins, pins_are_counted) {
  pager_walk w({.layout = shared(2)});
  w.visit(0, 0, {0, 1});
  const auto slot = w.decisions.locate({0_layer, 0_expert});
  const auto pin = w.decisions.pin(slot);
  const auto second = w.decisions.pin(slot);
  w.decisions.unpin(pin);
  EXPECT_EQ(w.try_plan(1, 0, {2, 3}), status::no_victim);
  w.decisions.unpin(second);
  w.decisions.unpin(second);  // one unpin too many: ignored
  EXPECT_EQ(w.try_plan(1, 0, {2, 3}), status::ok);
}

TEST(pager_pins, a_pin_protects_the_slots_content_and_not_its_next_one) {
  pager_walk w({.layout = shared(2)});
  w.visit(0, 0, {0, 1});
  const auto slot = w.decisions.locate({0_layer, 0_expert});
  const auto first = w.decisions.pin(slot);
  EXPECT_EQ(first.slot, slot);
  w.decisions.failed(slot, first.generation);
  w.visit(1, 0, {2, 2});
  ASSERT_EQ(w.decisions.locate({0_layer, 2_expert}), slot);
  EXPECT_EQ(w.decisions.slot(slot).pins, 0U);
  const auto second = w.decisions.pin(slot);
  w.decisions.unpin(first, 17);
  EXPECT_EQ(w.decisions.slot(slot).pins, 1U) << "somebody else's";
  EXPECT_EQ(w.decisions.slot(slot).last_reader, no_ticket);
  w.decisions.unpin(second, 18);
  EXPECT_EQ(w.decisions.slot(slot).pins, 0U);
  EXPECT_EQ(w.decisions.slot(slot).last_reader, 18U);
}

TEST(pager_pins, a_new_content_of_a_slot_has_no_pins) {
  pager_walk w({.layout = shared(2)});
  w.visit(0, 0, {0, 1});
  ASSERT_EQ(w.try_plan(1, 0, {2, 2}), status::ok);
  const auto slot = w.plan.fills()[0].slot;
  const auto pin = w.decisions.pin(slot);  // of the expert that the plan is about to replace
  ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
  EXPECT_EQ(w.decisions.slot(slot).pins, 0U);
  w.decisions.unpin(pin);
  support::expect_consistent(w.decisions);
}

// The kernel of a failed copy's visit may still run: the slot's next fill waits for it.
TEST(pager_pins, the_reader_of_a_slot_that_is_free_by_then_is_waited_for) {
  pager_walk w({.layout = shared(2)});
  w.visit(0, 0, {0, 1});
  const auto pin = w.decisions.pin(w.decisions.locate({0_layer, 0_expert}));
  w.decisions.failed(pin.slot, pin.generation);
  w.decisions.unpin(pin, 17);
  ASSERT_EQ(w.try_plan(1, 0, {2, 2}), status::ok);
  EXPECT_EQ(w.plan.fills()[0].slot, pin.slot);
  EXPECT_EQ(w.plan.fills()[0].after, 17U);
}

// Hazard 2: a fill names the reader that its copy must wait for.
TEST(pager_pins, a_fill_starts_after_the_last_reader_of_its_slot) {
  pager_walk w({.layout = shared(2)});
  w.visit(0, 0, {0, 1});
  const auto slot = w.decisions.locate({0_layer, 0_expert});
  w.decisions.unpin(w.decisions.pin(slot), 17);
  ASSERT_EQ(w.try_plan(1, 0, {2, 1}), status::ok);
  EXPECT_EQ(w.plan.fills()[0].slot, slot);
  EXPECT_EQ(w.plan.fills()[0].after, 17U);
  ASSERT_EQ(w.decisions.abort(w.plan, std::vector<std::uint8_t>{1}), status::ok);
  w.decisions.wait_before_fill(slot, 23);
  ASSERT_EQ(w.try_plan(1, 0, {3, 1}), status::ok);
  EXPECT_EQ(w.plan.fills()[0].slot, slot) << "a free slot, and still it has a reader";
  EXPECT_EQ(w.plan.fills()[0].after, 23U);
}

// Hazard 22: a resize loses experts.
TEST(pager_quota, shrinking_evicts_in_policy_order_down_to_the_quota) {
  pager_walk w({.layout = per_layer(4, 3)});
  w.visit(0, 0, {0, 1});
  w.visit(0, 1, {0, 1});
  w.visit(1, 0, {2, 3});
  ASSERT_EQ(w.decisions.set_quota(0_layer, 2), status::ok);
  support::expect_consistent(w.decisions);
  EXPECT_EQ(w.decisions.quota(0_layer), 2);
  EXPECT_THAT(w.readable(0), ElementsAre(2, 3));
  EXPECT_THAT(w.readable(1), ElementsAre(0, 1));
  w.visit(2, 0, {4, 5});
  EXPECT_THAT(w.readable(0), ElementsAre(4, 5));
}

TEST(pager_quota, slots_of_one_layer_can_go_to_another) {
  pager_walk w({.layout = per_layer(4, 3)});
  EXPECT_EQ(w.decisions.set_quota(1_layer, 4), status::exceeds_memory);
  ASSERT_EQ(w.decisions.set_quota(0_layer, 2), status::ok);
  EXPECT_EQ(w.decisions.set_quota(1_layer, 6), status::exceeds_memory);
  EXPECT_EQ(w.decisions.quota(1_layer), 3);
  ASSERT_EQ(w.decisions.set_quota(1_layer, 5), status::ok);
  w.visit(0, 1, {0, 1, 2, 3});
  w.visit(1, 1, {4, 4});
  EXPECT_EQ(w.stats().evictions, 0U);
  w.visit(2, 1, {5, 5});
  EXPECT_EQ(w.stats().evictions, 1U);
}

TEST(pager_quota, a_quota_that_cannot_be_is_refused) {
  pager_walk w({.layout = per_layer(4, 3)});
  EXPECT_EQ(w.decisions.set_quota(0_layer, 1), status::invalid_argument) << "below top_k";
  EXPECT_EQ(w.decisions.set_quota(0_layer, 9), status::invalid_argument)
      << "more than the layer has experts";
  EXPECT_EQ(w.decisions.set_quota(2_layer, 3), status::invalid_argument);
  EXPECT_EQ(w.decisions.set_quota(before_layers, 3), status::invalid_argument);
  EXPECT_EQ(w.decisions.set_quota(0_layer, 8), status::exceeds_memory)
      << "the experts exist, the slots do not";
  EXPECT_EQ(pager<lru>({.layout = shared(4)}).set_quota(0_layer, 5), status::exceeds_memory);
}

TEST(pager_quota, shrinking_below_pinned_or_filling_slots_is_busy_without_effect) {
  pager_walk w({.layout = per_layer(6, 3)});
  w.visit(0, 0, {0, 1, 2, 3});
  for (const auto e : {0_expert, 1_expert}) w.decisions.pin(w.decisions.locate({0_layer, e}));
  const auto fills = w.prefetch(0, 0, {{{0_layer, 6_expert}, 1}});
  const auto order = w.decisions.residents();
  EXPECT_EQ(w.decisions.set_quota(0_layer, 2), status::busy);
  EXPECT_EQ(w.decisions.quota(0_layer), 6);
  EXPECT_EQ(w.decisions.residents(), order);
  w.arrive(fills);
  EXPECT_EQ(w.decisions.set_quota(0_layer, 2), status::ok);
  EXPECT_THAT(w.readable(0), ElementsAre(0, 1));
}

TEST(pager_quota, growing_back_and_forth_loses_no_slot) {
  pager_walk w({.layout = per_layer(5, 5)});
  for (step_id step = 0; step < 20; ++step) {
    const auto to = static_cast<std::int32_t>(2 + step % 5);
    ASSERT_EQ(w.decisions.set_quota(0_layer, 2), status::ok);
    ASSERT_EQ(w.decisions.set_quota(1_layer, 2), status::ok);
    ASSERT_EQ(w.decisions.set_quota(0_layer, to), status::ok);
    ASSERT_EQ(w.decisions.set_quota(1_layer, 10 - to), status::ok);
    const auto before = w.stats().evictions;
    for (const auto k : w.decisions.residents()) ASSERT_EQ(w.decisions.invalidate(k), status::ok);
    const auto cleared = w.stats().evictions;
    EXPECT_GE(cleared, before);
    for (std::int32_t e = 0; e < to; ++e) w.visit(step, 0, {e, e});
    for (std::int32_t e = 0; e < 10 - to; ++e) w.visit(step, 1, {e, e});
    EXPECT_EQ(w.stats().evictions, cleared) << "every slot of the quota could be used";
  }
}

TEST(pager_trim, evicts_in_policy_order_until_the_bytes_fit) {
  pager_walk w({.layout = shared(8)});
  w.visit(0, 0, {0, 1});
  w.visit(0, 1, {2, 3});
  w.visit(1, 0, {0, 4});
  EXPECT_EQ(w.decisions.resident_bytes(0_pool), 50U);
  visit_context context;
  EXPECT_EQ(w.decisions.trim(context, 50, {}), 0U);
  EXPECT_EQ(w.decisions.trim(context, 49, {}), 1U);
  support::expect_consistent(w.decisions);
  EXPECT_THAT(w.readable(0), ElementsAre(0, 4)) << "1 was the least recent";
  EXPECT_EQ(w.decisions.trim(context, 20, {}), 2U);
  EXPECT_THAT(w.readable(1), IsEmpty());
  EXPECT_EQ(w.decisions.resident_bytes(0_pool), 20U);
}

TEST(pager_trim, never_evicts_protected_or_pinned_slots) {
  pager_walk w({.layout = shared(8)});
  w.visit(0, 0, {0, 1, 2, 3});
  const std::array keep{w.decisions.locate({0_layer, 0_expert}), no_slot,
                        w.decisions.locate({0_layer, 2_expert})};
  const auto pin = w.decisions.pin(w.decisions.locate({0_layer, 1_expert}));
  EXPECT_EQ(w.decisions.trim({}, 0, keep), 1U);
  support::expect_consistent(w.decisions);
  EXPECT_THAT(w.readable(0), ElementsAre(0, 1, 2));
  w.decisions.unpin(pin);
  EXPECT_EQ(w.decisions.trim({}, 0, {}), 3U);
  EXPECT_EQ(w.decisions.resident_bytes(0_pool), 0U);
}

/// Keys that pre_evict released, in order.
std::vector<expert_key> pre_evicted(pager_walk<>& w, const visit_context& context,
                                    std::size_t slots, std::span<const slot_id> spared = {}) {
  std::vector<expert_key> out;
  const auto count =
      w.decisions.pre_evict(context, slots, spared, [&](slot_id slot, expert_key key) {
        EXPECT_EQ(w.decisions.slot(slot).state, slot_state::free);
        EXPECT_EQ(w.decisions.locate(key), no_slot);
        out.push_back(key);
      });
  EXPECT_EQ(count, out.size());
  support::expect_consistent(w.decisions);
  return out;
}

TEST(pager_pre_evict, counts_slots_that_are_already_free) {
  pager_walk w({.layout = shared(6)});
  w.visit(0, 0, {0, 1});
  w.visit(0, 1, {2, 3});
  EXPECT_EQ(w.decisions.free_slots(0_pool), 2U);
  EXPECT_THAT(pre_evicted(w, {.layer = 1_layer, .step = 1}, 2), IsEmpty());
  EXPECT_THAT(pre_evicted(w, {.layer = 1_layer, .step = 1}, 3),
              ElementsAre(expert_key{0_layer, 0_expert}));
  EXPECT_EQ(w.decisions.free_slots(0_pool), 3U);
  EXPECT_EQ(w.stats().pre_evictions, 1U);
  EXPECT_EQ(w.stats().evictions, 1U);
}

TEST(pager_pre_evict, released_slots_are_filled_last_in_order_of_release) {
  pager_walk w({.layout = shared(5)});
  w.visit(0, 0, {0, 1});
  w.visit(0, 1, {2, 3});
  const auto first = w.decisions.locate({0_layer, 0_expert});
  const auto second = w.decisions.locate({0_layer, 1_expert});
  EXPECT_THAT(pre_evicted(w, {.layer = 0_layer, .step = 1}, 3),
              ElementsAre(expert_key{0_layer, 0_expert}, expert_key{0_layer, 1_expert}));
  w.visit(1, 0, {4, 5, 6, 4});
  EXPECT_EQ(w.decisions.locate({0_layer, 4_expert}), 4) << "was free before";
  EXPECT_EQ(w.decisions.locate({0_layer, 5_expert}), first);
  EXPECT_EQ(w.decisions.locate({0_layer, 6_expert}), second);
}

TEST(pager_pre_evict, never_evicts_spared_or_read_slots) {
  pager_walk w({.layout = shared(4)});
  w.visit(0, 0, {0, 1, 2, 3});
  const std::array spared{w.decisions.locate({0_layer, 0_expert})};
  const auto pin = w.decisions.pin(w.decisions.locate({0_layer, 1_expert}));
  EXPECT_THAT(pre_evicted(w, {.layer = 0_layer, .step = 1}, 9, spared),
              ElementsAre(expert_key{0_layer, 2_expert}, expert_key{0_layer, 3_expert}));
  w.decisions.unpin(pin);
}

TEST(pager_pre_evict, a_use_in_the_step_of_its_release_is_a_collision) {
  pager_walk w({.layout = shared(4)});
  w.visit(0, 0, {0, 1});
  w.visit(0, 1, {0, 1});
  (void)pre_evicted(w, {.layer = 1_layer, .step = 1},
                    2);  // ahead of layer 1, before layer 0 was committed
  w.visit(1, 0, {0, 1});
  EXPECT_EQ(w.stats().collision_misses, 2U);
  EXPECT_EQ(w.stats().bytes_refetched, 20U);
  (void)pre_evicted(w, {.layer = 1_layer, .step = 2}, 2);
  w.visit(3, 1, {0, 1});  // in a later step it is no collision
  EXPECT_EQ(w.stats().collision_misses, 2U);
}

TEST(pager_pre_evict, does_nothing_while_a_plan_is_open) {
  pager_walk w({.layout = shared(4)});
  w.visit(0, 0, {0, 1});
  auto plan = w.decisions.make_plan();
  routing_view view;
  const std::vector<std::int32_t> ids{2, 3};
  view.experts = ids;
  ASSERT_EQ(w.decisions.plan(view, plan), status::ok);
  EXPECT_THAT(pre_evicted(w, {.layer = 0_layer, .step = 1}, 4), IsEmpty());
  ASSERT_EQ(w.decisions.abort(plan), status::ok);
}

TEST(pager_trim, more_slots_than_one_choice_returns) {
  const geometry wide{.layers = 1, .experts = 64, .top_k = 2, .max_tokens_per_visit = 32};
  pager_walk w({.layout = pool_layout::shared(wide, 64).value()});
  std::vector<expert_id> all(64);
  for (const auto e : each<expert_id>(64)) all[index_of(e)] = e;
  w.visit(0, 0, all);
  EXPECT_EQ(w.decisions.trim({}, 7, {}), 57U);
  EXPECT_THAT(w.readable(0), ElementsAre(57, 58, 59, 60, 61, 62, 63));
}

// Hazard 20: host bytes become invalid.
TEST(pager_invalidate, forgets_a_key_or_a_layer) {
  pager_walk w({.layout = shared(6)});
  w.visit(0, 0, {0, 1});
  w.visit(0, 1, {0, 1});
  EXPECT_EQ(w.decisions.invalidate(expert_key{0_layer, 1_expert}), status::ok);
  EXPECT_THAT(w.readable(0), ElementsAre(0));
  EXPECT_EQ(w.decisions.invalidate(expert_key{0_layer, 1_expert}), status::ok) << "absent already";
  EXPECT_EQ(w.decisions.invalidate(1_layer), status::ok);
  EXPECT_THAT(w.readable(1), IsEmpty());
  support::expect_consistent(w.decisions);
  for (const expert_key bad : {expert_key{2_layer, 0_expert}, expert_key{0_layer, 8_expert},
                               expert_key{before_layers, 0_expert}})
    EXPECT_EQ(w.decisions.invalidate(bad), status::invalid_argument);
  EXPECT_EQ(w.decisions.invalidate(2_layer), status::invalid_argument);
}

TEST(pager_invalidate, a_key_in_use_is_busy_and_a_layer_is_forgotten_whole_or_not_at_all) {
  pager_walk w({.layout = shared(8)});
  w.visit(0, 0, {0, 1});
  const auto pin = w.decisions.pin(w.decisions.locate({0_layer, 1_expert}));
  EXPECT_EQ(w.decisions.invalidate(expert_key{0_layer, 1_expert}), status::busy);
  EXPECT_EQ(w.decisions.invalidate(0_layer), status::busy);
  EXPECT_THAT(w.readable(0), ElementsAre(0, 1));
  w.decisions.unpin(pin);
  const auto fills = w.prefetch(0, 0, {{{0_layer, 5_expert}, 1}});
  EXPECT_EQ(w.decisions.invalidate(0_layer), status::busy);
  EXPECT_EQ(w.decisions.invalidate(expert_key{0_layer, 5_expert}), status::busy);
  w.arrive(fills);
  EXPECT_EQ(w.decisions.invalidate(0_layer), status::ok);
  EXPECT_THAT(w.placed(0), IsEmpty());
}

TEST(pager_size_classes, layers_of_different_bytes_do_not_share_slots) {
  auto mixed = shape;
  mixed.expert_bytes = {10, 30};
  pager_walk w(
      {.layout =
           pool_layout::shared_by_size_class(mixed, std::array<std::int64_t, 2>{3, 2}).value()});
  for (step_id step = 0; step < 12; ++step) {
    const auto e = static_cast<std::int32_t>(step % 7);
    w.visit(step, 0, {e, e + 1});
    w.visit(step, 1, {e, e + 1});
    for (const auto slot : w.decisions.row(0_layer)) EXPECT_LT(slot, 3);
    for (const auto slot : w.decisions.row(1_layer)) EXPECT_TRUE(slot == -1 || slot >= 3);
  }
  EXPECT_EQ(w.decisions.resident_bytes(0_pool), 30U);
  EXPECT_EQ(w.decisions.resident_bytes(1_pool), 60U);
  EXPECT_EQ(w.decisions.set_quota(0_layer, 2), status::ok);
  EXPECT_EQ(w.decisions.set_quota(1_layer, 3), status::exceeds_memory)
      << "the spare slot is of another size";
}

// Hazard 30: with the least recent slots protected, LRU examines them, its victims, and the slots that it reads with
// them, fewer than 16. The mask has entries for these slots only: examining another one violates its precondition.
TEST(pager_victims, lru_examines_few_more_than_the_protected_and_the_needed_slots) {
  const geometry wide{.layers = 1, .experts = 1000, .top_k = 2};
  const auto layout = pool_layout::shared(wide, 1000).value();
  lru policy(layout);
  for (const auto s : each<slot_id>(1000)) {
    expert_use a;
    a.key = {0_layer, expert_id{number(s)}};
    a.slot = s;
    support::bring(policy, a);
  }
  constexpr std::size_t protected_slots = 8;
  constexpr std::size_t needed = 4;
  constexpr std::size_t examined = protected_slots + needed + 15;
  slot_mask eligible(examined);
  for (auto s = static_cast<slot_id>(protected_slots); s < static_cast<slot_id>(examined); ++s)
    eligible.set(s);
  std::array<slot_id, needed> out{};
  EXPECT_EQ(policy.select_victims({}, eligible, out), needed);
  EXPECT_THAT(out, ElementsAre(8, 9, 10, 11));
}

}  // namespace
}  // namespace hotset::pager_room_test
