// SPDX-License-Identifier: Apache-2.0
// Experts in several precisions: the pool of a miss, upgrades, visits that fill all pools.

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/miss/compute_on_host.hpp"
#include "hotset/miss/fetch_lowest.hpp"
#include "pager_walk.hpp"
#include "scripted_miss.hpp"

namespace hotset::pager_precision_test {
namespace {

using support::dropped;
using support::fetch_at;
using support::keep_low;
using support::on_host;
using support::pager_walk;
using support::picky;
using support::scripted_miss;
using support::substituted;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

/// LRU that records each fill with its place: "fill 3 slot 1 pool 0 precision 0".
class placed_lru {
 public:
  struct config {
    std::vector<std::string>* to = nullptr;
    [[nodiscard]] validation validate() const { return std::nullopt; }
  };
  static constexpr std::string_view name = "placed_lru";
  static constexpr eviction_traits traits{.wants_requests = true};

  placed_lru(const pool_layout& layout, const config& options) : inner_(layout), to_(options.to) {}
  void on_visit(const visit_event& e) noexcept {
    for (const auto& f : e.fills)
      if (f.victim != no_key) write_loss(f.slot, f.victim);
    e.each_use([&](std::size_t i, bool is_filled) {
      write(is_filled ? "fill" : "hit", e.experts[i], e.used[i], e.context.pool, e.precision);
    });
    for (const auto& b : e.bypassed)
      write("bypass", b.expert, no_slot, e.context.pool, e.precision);
    inner_.on_visit(e);
  }
  void on_prefetch(const prefetch_event& e) noexcept {
    write("prefetch", e.key.expert, e.slot, e.pool, e.precision);
    inner_.on_prefetch(e);
  }
  void on_request(const prefetch_event& e) noexcept {
    write("request", e.key.expert, e.slot, e.pool, e.precision);
  }
  void on_evict(slot_id slot, expert_key key) noexcept {
    write_loss(slot, key);
    inner_.on_evict(slot, key);
  }
  void on_move(slot_id from, slot_id to) noexcept { inner_.on_move(from, to); }
  std::size_t select_victims(const visit_context& context, const slot_mask& eligible,
                             std::span<slot_id> out) noexcept {
    return inner_.select_victims(context, eligible, out);
  }

 private:
  void write(const std::string& what, expert_id expert, slot_id slot, pool_id pool,
             precision_id precision) {
    to_->push_back(what + ' ' + to_string(expert) + " slot " + to_string(slot) + " pool " +
                   to_string(pool) + " precision " + to_string(precision));
  }
  void write_loss(slot_id slot, expert_key key) {
    to_->push_back("evict " + to_string(key.expert) + " slot " + to_string(slot));
  }
  lru inner_;
  std::vector<std::string>* to_;
};
static_assert(eviction_policy<placed_lru>);

const geometry shape{.layers = 2,
                     .experts = 8,
                     .top_k = 2,
                     .max_tokens_per_visit = 4,
                     .expert_bytes = {100},
                     .lower_precisions = {{40}, {10}}};

/// Slots of the three precisions: with {2, 1, 1} slots 0 and 1 are of precision 0, 2 of 1, and 3 of 2.
pool_layout ladder(const std::vector<std::int64_t>& slots) {
  return pool_layout::shared_by_precision(shape, slots).value();
}

struct pager_precision : testing::Test {
  using decided = pager<lru, always, scripted_miss>;
  using told = pager<placed_lru, always, scripted_miss>;

  pager_walk<decided> walk(const std::vector<std::int64_t>& slots) {
    return pager_walk<decided>({.layout = ladder(slots), .miss = {&script}});
  }
  pager_walk<told> walk_told(const std::vector<std::int64_t>& slots) {
    return pager_walk<told>({.layout = ladder(slots), .eviction = {&journal}, .miss = {&script}});
  }
  template <class Walk>
  static int precision_of(const Walk& w, support::written_expert e,
                          support::written_layer layer = 0) {
    const auto slot = w.decisions.locate({layer, e});
    return slot == no_slot ? -1 : number(w.decisions.precision_of(slot));
  }
  /// State that an abort must restore.
  template <class Pager>
  static std::vector<std::int64_t> picture(Pager& p) {
    std::vector<std::int64_t> out;
    for (const auto l : each<layer_id>(shape.layers)) {
      for (const auto slot : p.row(l)) out.push_back(number(slot));
      for (const auto e : each<expert_id>(shape.experts)) out.push_back(number(p.locate({l, e})));
    }
    for (const auto n : each<pool_id>(3))
      out.push_back(static_cast<std::int64_t>(p.resident_bytes(n)));
    for (const auto k : p.residents()) out.push_back(number(k.layer) * 100 + number(k.expert));
    return out;
  }
  scripted_miss::script script;
  std::vector<std::string> journal;
};

TEST_F(pager_precision, a_miss_lives_in_the_pool_of_the_precision_that_was_decided) {
  auto w = walk_told({2, 1, 1});
  script.decisions = {{4_expert, fetch_at(2_precision)}};
  w.visit(0, 0, {3, 4});
  EXPECT_THAT(journal, ElementsAre("fill 3 slot 0 pool 0 precision 0",  //
                                   "fill 4 slot 3 pool 2 precision 2"));
  ASSERT_THAT(w.plan.fills(), SizeIs(2));
  EXPECT_EQ(w.plan.fills()[0].precision, 0);
  EXPECT_EQ(w.plan.fills()[1].precision, 2);
  EXPECT_EQ(w.decisions.resident_bytes(0_pool), 100U);
  EXPECT_EQ(w.decisions.resident_bytes(1_pool), 0U);
  EXPECT_EQ(w.decisions.resident_bytes(2_pool), 10U);
  EXPECT_EQ(w.stats().bytes_demand, 110U);
  EXPECT_EQ(w.stats().bytes_filled, 110U);
  journal.clear();
  w.visit(1, 0, {4, 3});
  EXPECT_THAT(journal, ElementsAre("hit 3 slot 0 pool 0 precision 0",  //
                                   "hit 4 slot 3 pool 2 precision 2"));
  ASSERT_THAT(script.asked, SizeIs(2));
  ASSERT_THAT(script.asked[1], SizeIs(1))
      << "the policy is not asked about experts held at precision 0";
  EXPECT_EQ(script.asked[1][0].expert, 4);
  EXPECT_EQ(script.asked[1][0].held, 2);
  EXPECT_EQ(w.stats().hits, 2U);
}

TEST_F(pager_precision, a_precision_below_the_lowest_is_the_lowest) {
  auto w = walk({2, 1, 1});
  script.decisions = {{4_expert, fetch_at(7_precision)}};
  w.visit(0, 0, {3, 4});
  EXPECT_EQ(precision_of(w, 4), 2);
}

TEST_F(pager_precision, an_upgrade_is_filled_before_the_low_copy_is_evicted) {
  auto w = walk_told({2, 1, 1});
  script.decisions = {{4_expert, fetch_at(2_precision)}};
  w.visit(0, 0, {3, 4});
  journal.clear();
  script.decisions = {{4_expert, fetch_at(0_precision)}};
  ASSERT_EQ(w.try_plan(0, 0, {3, 4}), status::ok);
  ASSERT_THAT(w.plan.fills(), SizeIs(1));
  EXPECT_EQ(w.plan.fills()[0].key, (expert_key{0_layer, 4_expert}));
  EXPECT_EQ(w.plan.fills()[0].slot, 1);
  EXPECT_EQ(w.plan.fills()[0].precision, 0);
  EXPECT_EQ(w.plan.fills()[0].victim, no_key) << "the low copy is not overwritten";
  EXPECT_THAT(w.plan.slots(), ElementsAre(0, 1)) << "the plan does not use the low copy";
  EXPECT_EQ(w.decisions.slot(3_slot).state, slot_state::resident);
  ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
  support::expect_consistent(w.decisions);
  EXPECT_THAT(journal, ElementsAre("evict 4 slot 3",                   //
                                   "hit 3 slot 0 pool 0 precision 0",  //
                                   "fill 4 slot 1 pool 0 precision 0"));
  EXPECT_EQ(w.decisions.slot(3_slot).state, slot_state::free);
  EXPECT_EQ(w.decisions.resident_bytes(0_pool), 200U);
  EXPECT_EQ(w.decisions.resident_bytes(2_pool), 0U);
  const auto s = w.stats();
  EXPECT_EQ(s.misses, 3U);
  EXPECT_EQ(s.hits, 1U);
  EXPECT_EQ(s.precision_misses, 1U);
  EXPECT_EQ(s.compulsory_misses, 2U);
  EXPECT_EQ(s.collision_misses, 0U);
  EXPECT_EQ(s.capacity_misses(), 0U);
  EXPECT_EQ(s.evictions, 0U) << "no key lost its place";
  EXPECT_EQ(s.fills, 3U);
  EXPECT_EQ(s.steps_with_miss, 1U);
  script.decisions = {{5_expert, fetch_at(2_precision)}};
  w.visit(1, 0, {5, 3});
  EXPECT_EQ(w.decisions.locate({0_layer, 5_expert}), 3) << "the low slot can be had again";
}

TEST_F(pager_precision, a_key_that_was_upgraded_and_then_lost_is_no_collision_of_the_upgrade) {
  auto w = walk({1, 1, 1});
  script.decisions = {{4_expert, fetch_at(2_precision)}};
  w.visit(0, 0, {4, 4});
  script.decisions = {{4_expert, fetch_at(0_precision)}};
  w.visit(1, 0, {4, 4});  // step 1 evicts the low copy
  script.decisions.clear();
  w.visit(2, 0, {5, 5});  // 5 takes 4's slot
  EXPECT_EQ(w.stats().evictions, 1U);
  w.visit(3, 0, {4, 4});
  EXPECT_EQ(w.stats().collision_misses, 0U);
  EXPECT_EQ(w.stats().capacity_misses(), 1U);
}

TEST_F(pager_precision, an_upgrade_is_not_counted_as_a_refetch) {
  auto w = walk({2, 1, 1});
  script.decisions = {{4_expert, fetch_at(2_precision)}, {5_expert, fetch_at(2_precision)}};
  w.visit(0, 0, {4, 4});
  w.visit(1, 0, {5, 5});
  w.visit(1, 0, {4, 4});  // evicted in this step
  EXPECT_EQ(w.stats().collision_misses, 1U);
  EXPECT_EQ(w.stats().bytes_refetched, 10U);
  script.decisions = {{4_expert, fetch_at(0_precision)}};
  w.visit(1, 0, {4, 4});
  EXPECT_EQ(w.stats().precision_misses, 1U);
  EXPECT_EQ(w.stats().collision_misses, 1U);
  EXPECT_EQ(w.stats().bytes_refetched, 10U);
  EXPECT_EQ(w.stats().bytes_demand, 30U + 100);
}

TEST_F(pager_precision, an_aborted_upgrade_keeps_the_low_copy) {
  for (const bool full : {false, true})
    for (const std::vector<std::uint8_t>& started :
         {std::vector<std::uint8_t>{}, std::vector<std::uint8_t>{0},
          std::vector<std::uint8_t>{1}}) {
      SCOPED_TRACE(testing::Message() << full << ' ' << started.size());
      auto w = walk({2, 1, 1});
      script.decisions = {{4_expert, fetch_at(2_precision)}};
      w.visit(0, 0, {3, 4});
      if (full) w.visit(0, 1, {3, 3});
      const auto before = picture(w.decisions);
      const bool lost = full && !started.empty() && started[0] != 0;
      script.decisions = {{4_expert, fetch_at(0_precision)}};
      ASSERT_EQ(w.try_plan(1, 0, {4, 4}), status::ok);
      ASSERT_THAT(w.plan.fills(), SizeIs(1));
      EXPECT_EQ(w.plan.fills()[0].victim, full ? (expert_key{0_layer, 3_expert}) : no_key);
      ASSERT_EQ(w.decisions.abort(w.plan, started), status::ok);
      support::expect_consistent(w.decisions);
      EXPECT_EQ(precision_of(w, 4), 2);
      EXPECT_EQ(w.decisions.row(0_layer)[4], 3);
      if (lost)
        EXPECT_EQ(precision_of(w, 3), -1) << "its bytes are gone";
      else
        EXPECT_EQ(picture(w.decisions), before);
      EXPECT_EQ(w.stats().precision_misses, 0U);
      EXPECT_EQ(w.stats().failed_fills, started.empty() ? 0U : started[0]);
    }
}

TEST_F(pager_precision, the_low_copy_of_an_upgrade_is_no_victim_of_its_visit) {
  auto w = walk({2, 1, 1});
  script.decisions = {{4_expert, fetch_at(2_precision)}};
  w.visit(0, 0, {4, 4});
  script.decisions = {{4_expert, fetch_at(0_precision)}, {5_expert, fetch_at(2_precision)}};
  ASSERT_EQ(w.try_plan(1, 0, {5, 4}), status::ok);
  ASSERT_THAT(w.plan.fills(), SizeIs(2));
  EXPECT_THAT(w.plan.slots(), ElementsAre(2, 0)) << "5 finds no room at 2 and goes up";
  EXPECT_EQ(w.plan.fills()[0].precision, 1);
}

TEST_F(pager_precision, a_pinned_low_copy_is_used_as_it_is) {
  auto w = walk({2, 1, 1});
  script.decisions = {{4_expert, fetch_at(2_precision)}};
  w.visit(0, 0, {3, 4});
  const auto pin = w.decisions.pin(w.decisions.locate({0_layer, 4_expert}));
  script.decisions = {{4_expert, fetch_at(0_precision)}};
  w.visit(1, 0, {4, 3});
  EXPECT_THAT(w.plan.fills(), IsEmpty());
  EXPECT_THAT(w.plan.services(), ElementsAre(service::hit, service::hit));
  EXPECT_EQ(w.stats().precision_misses, 0U);
  EXPECT_EQ(w.stats().hits, 2U);
  w.decisions.unpin(pin);
  w.visit(2, 0, {4, 3});
  EXPECT_EQ(precision_of(w, 4), 0);
}

TEST_F(pager_precision, a_pending_low_copy_is_used) {
  auto w = walk({2, 1, 2});
  script.prefetched = 2_precision;
  const auto fills = w.prefetch(0, 0, {{{0_layer, 4_expert}, 0}});
  ASSERT_THAT(fills, SizeIs(1));
  EXPECT_EQ(fills[0].precision, 2);
  script.decisions = {{4_expert, fetch_at(0_precision)}};
  w.visit(0, 0, {4, 3});
  EXPECT_THAT(w.plan.late_slots(), ElementsAre(fills[0].slot));
  EXPECT_EQ(w.plan.services()[0], service::hit);
  EXPECT_EQ(precision_of(w, 4), 2);
  EXPECT_EQ(w.stats().prefetch_hits, 1U);
  w.visit(1, 0, {4, 3});
  EXPECT_EQ(precision_of(w, 4), 0) << "it has arrived";
}

TEST_F(pager_precision, a_copy_of_the_held_precision_or_a_lower_one_is_no_upgrade) {
  auto w = walk({2, 2, 2});
  script.decisions = {{4_expert, fetch_at(1_precision)}};
  w.visit(0, 0, {3, 4});
  for (const auto decision : {fetch_at(1_precision), fetch_at(2_precision), keep_low}) {
    script.decisions = {{4_expert, decision}};
    w.visit(1, 0, {3, 4});
    EXPECT_THAT(w.plan.fills(), IsEmpty());
    EXPECT_EQ(precision_of(w, 4), 1);
  }
  EXPECT_EQ(w.stats().precision_misses, 0U);
}

TEST_F(pager_precision, without_room_above_a_held_copy_it_is_used_as_it_is) {
  for (const std::int64_t same : {1, 2}) {  // with 1, only a lower precision has room
    auto w = walk({1, same, 2});
    script.decisions = {{4_expert, fetch_at(1_precision)}};
    w.visit(0, 0, {3, 4});
    const auto before = picture(w.decisions);
    script.decisions = {{4_expert, fetch_at(0_precision)}};
    w.visit(1, 0, {3, 4});  // the visit itself uses the only slot of precision 0
    EXPECT_THAT(w.plan.fills(), IsEmpty()) << "another copy of precision 1 or below has no use";
    EXPECT_THAT(w.plan.services(), ElementsAre(service::hit, service::hit));
    EXPECT_TRUE(w.plan.all_hits());
    EXPECT_EQ(picture(w.decisions), before);
    EXPECT_EQ(w.stats().precision_misses, 0U);
    EXPECT_EQ(w.stats().hits, 2U);
    EXPECT_EQ(w.stats().steps_with_miss, 1U);
  }
}

TEST_F(pager_precision, an_upgrade_by_one_step_is_better_than_none) {
  auto w = walk({1, 2, 2});
  script.decisions = {{4_expert, fetch_at(2_precision)}};
  w.visit(0, 0, {3, 4});
  script.decisions = {{4_expert, fetch_at(0_precision)}};
  w.visit(1, 0, {3, 4});
  EXPECT_EQ(precision_of(w, 4), 1);
  EXPECT_EQ(w.stats().precision_misses, 1U);
  EXPECT_EQ(w.stats().steps_with_miss, 2U) << "step 1 waits for a copy";
}

TEST_F(pager_precision, a_miss_without_room_tries_lower_then_higher_precisions) {
  auto w = walk({1, 1, 1});
  w.visit(0, 0, {0, 1});
  EXPECT_EQ(precision_of(w, 0), 0);
  EXPECT_EQ(precision_of(w, 1), 1) << "down by one";
  w.visit(0, 0, {0, 1, 2, 2});
  EXPECT_EQ(precision_of(w, 2), 2) << "down by two";
  for (const auto e : {0_expert, 1_expert})
    ASSERT_EQ(w.decisions.invalidate(expert_key{0_layer, e}), status::ok);
  script.otherwise = 2_precision;
  w.visit(0, 0, {2, 3});
  EXPECT_EQ(precision_of(w, 3), 1) << "nothing is below: up by one";
  w.visit(0, 0, {2, 3, 4, 4});
  EXPECT_EQ(precision_of(w, 4), 0) << "up by two";
  EXPECT_EQ(w.stats().evictions, 2U) << "the two that were invalidated";
}

TEST_F(pager_precision, room_at_the_wanted_precision_is_made_before_another_is_taken) {
  auto w = walk({1, 1, 1});
  w.visit(0, 0, {0, 0});
  w.visit(1, 0, {1, 1});
  EXPECT_EQ(precision_of(w, 1), 0) << "though the lower pools are empty";
  EXPECT_EQ(precision_of(w, 0), -1);
}

TEST_F(pager_precision, the_heaviest_choose_first_and_the_earlier_of_equals) {
  auto w = walk({1, 1, 2});
  w.visit(0, 0, {0, 1, 2, 3}, {.2F, .3F, .9F, .3F});
  EXPECT_EQ(precision_of(w, 2), 0);
  EXPECT_EQ(precision_of(w, 1), 1);
  EXPECT_EQ(precision_of(w, 3), 2);
  EXPECT_EQ(precision_of(w, 0), 2);
  EXPECT_THAT(w.plan.slots(), ElementsAre(2, 1, 0, 3)) << "fills are in order of first appearance";
}

TEST_F(pager_precision, victims_are_of_the_pool_that_is_filled) {
  auto w = walk_told({2, 1, 1});
  w.visit(0, 0, {0, 1});
  script.decisions = {{2_expert, fetch_at(2_precision)}};
  w.visit(0, 0, {2, 1});
  journal.clear();
  script.decisions = {{3_expert, fetch_at(2_precision)}, {4_expert, fetch_at(0_precision)}};
  w.visit(1, 0, {3, 4});
  EXPECT_THAT(journal, ElementsAre("evict 0 slot 0", "fill 4 slot 0 pool 0 precision 0",  //
                                   "evict 2 slot 3", "fill 3 slot 3 pool 2 precision 2"));
}

TEST_F(pager_precision, a_visit_larger_than_all_pools_is_split_into_groups_that_fit) {
  auto w = walk({1, 1, 1});
  script.decisions = {{0_expert, fetch_at(2_precision)}};
  w.visit(0, 0, {0, 0});
  script.decisions = {{0_expert, fetch_at(0_precision)}};
  ASSERT_EQ(w.try_plan(1, 0, {0, 1, 2, 3, 4, 5, 0, 6}), status::ok);
  EXPECT_EQ(w.plan.groups(), 3U) << "tokens 0 and 3 share 0";
  std::set<std::uint32_t> tokens;
  bool used_low = false;
  while (true) {
    std::set<slot_id> slots;
    for (std::size_t i = 0; i < w.plan.experts().size(); ++i) {
      ASSERT_NE(w.plan.slots()[i], no_slot);
      EXPECT_TRUE(slots.insert(w.plan.slots()[i]).second);
      if (w.plan.experts()[i] != 0) continue;
      EXPECT_EQ(w.plan.services()[i], service::hit) << "used as it is";
      EXPECT_EQ(w.decisions.precision_of(w.plan.slots()[i]), 2);
      used_low = true;
    }
    for (const auto t : w.plan.tokens()) EXPECT_TRUE(tokens.insert(t).second);
    ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
    support::expect_consistent(w.decisions);
    for (std::size_t i = 0; i < w.plan.experts().size(); ++i)
      EXPECT_EQ(w.decisions.row(0_layer)[index_of(w.plan.experts()[i])], w.plan.slots()[i]);
    if (!w.plan.more()) break;
    ASSERT_EQ(w.decisions.plan_next(w.plan), status::ok);
  }
  EXPECT_TRUE(used_low);
  EXPECT_EQ(tokens, (std::set<std::uint32_t>{0, 1, 2, 3}));
  const auto s = w.stats();
  EXPECT_EQ(s.precision_misses, 0U);
  EXPECT_EQ(s.accesses, 1U + 7);
  EXPECT_EQ(s.misses, 1U + 6);
  EXPECT_EQ(s.fills, 7U);
  EXPECT_EQ(s.split_visits, 1U);
}

TEST_F(pager_precision, a_resident_evicted_by_a_group_returns_at_the_highest_precision) {
  auto w = walk({1, 1, 1});
  script.decisions = {{0_expert, fetch_at(2_precision)}};
  w.visit(0, 0, {0, 0});
  script.decisions = {{0_expert, keep_low},
                      {1_expert, fetch_at(2_precision)},
                      {2_expert, fetch_at(2_precision)},
                      {3_expert, fetch_at(2_precision)}};
  ASSERT_EQ(w.try_plan(1, 0, {1, 2, 0, 3}), status::ok);
  ASSERT_EQ(w.plan.groups(), 2U);
  ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
  ASSERT_EQ(precision_of(w, 0), -1);
  ASSERT_EQ(w.decisions.plan_next(w.plan), status::ok);
  ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
  EXPECT_EQ(precision_of(w, 0), 0);
  EXPECT_EQ(precision_of(w, 3), 2);
  EXPECT_EQ(w.stats().misses, 1U + 3) << "0 was there before the visit";
  EXPECT_EQ(w.stats().fills, 1U + 4);
}

TEST_F(pager_precision, a_late_low_copy_evicted_by_a_group_returns_as_requested) {
  auto w = walk({1, 1, 1});
  script.prefetched = 2_precision;
  ASSERT_THAT(w.prefetch(0, 0, {{{0_layer, 0_expert}, 0}}), SizeIs(1));
  script.decisions = {{0_expert, fetch_at(1_precision)},
                      {1_expert, fetch_at(2_precision)},
                      {2_expert, fetch_at(0_precision)}};
  // Tokens 0 and 2 use the late copy, 1 takes its slot, and 3 needs it again.
  ASSERT_EQ(w.try_plan(0, 0, {0, 5, 1, 2, 0, 6, 0, 7}), status::ok);
  ASSERT_EQ(w.plan.groups(), 3U);
  EXPECT_EQ(w.plan.services()[0], service::hit);
  ASSERT_TRUE(w.next_group());
  ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
  EXPECT_EQ(precision_of(w, 0), -1);
  ASSERT_EQ(w.decisions.plan_next(w.plan), status::ok);
  ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
  EXPECT_EQ(precision_of(w, 0), 1);
}

TEST_F(pager_precision, a_visit_split_by_expert_uses_low_copies_as_they_are) {
  pager_walk<decided> w(
      {.layout = ladder({1, 1, 1}), .miss = {&script}, .split = visit_split::by_expert});
  script.decisions = {{0_expert, fetch_at(2_precision)}, {1_expert, fetch_at(1_precision)}};
  w.visit(0, 0, {0, 1});
  script.decisions = {{0_expert, fetch_at(0_precision)}, {1_expert, on_host}, {5_expert, dropped}};
  ASSERT_EQ(w.try_plan(1, 0, {2, 0, 3, 4, 1, 5, 6, 7}), status::ok);
  std::vector<expert_id> order;
  std::size_t groups = 0;
  do {
    ++groups;
    for (std::size_t i = 0; i < w.plan.experts().size(); ++i) {
      const auto e = w.plan.experts()[i];
      order.push_back(e);
      EXPECT_EQ(w.plan.services()[i], e == 0   ? service::hit
                                      : e == 1 ? service::host
                                               : service::fill);
      EXPECT_EQ(w.plan.slots()[i] == no_slot, e == 1);
    }
    EXPECT_THAT(w.plan.routed(), ElementsAre(2, 0, 3, 4, 1, -1, 6, 7));
  } while (w.next_group());
  EXPECT_EQ(groups, 2U);
  EXPECT_THAT(order, ElementsAre(0, 2, 3, 4, 6, 7, 1)) << "residents first, the host's last";
  const auto s = w.stats();
  EXPECT_EQ(s.misses, 2U + 7) << "all but 0";
  EXPECT_EQ(s.precision_misses, 1U);
  EXPECT_EQ(s.fills + s.bypasses + s.dropped_misses, s.misses);
}

TEST_F(pager_precision, a_visit_that_upgrades_make_too_large_uses_all_copies_as_they_are) {
  auto w = walk({1, 1, 1});
  script.decisions = {{0_expert, fetch_at(2_precision)}};
  w.visit(0, 0, {0, 0});
  const auto pin = w.decisions.pin(w.decisions.locate({0_layer, 0_expert}));
  script.decisions = {{1_expert, fetch_at(1_precision)}};
  w.visit(0, 0, {1, 1});
  w.decisions.unpin(pin);
  // 0 and 1 are resident at a low precision and needed at 0: two upgrades and a miss for one free slot.
  script.decisions = {{0_expert, fetch_at(0_precision)}, {1_expert, fetch_at(0_precision)}};
  w.visit(1, 0, {0, 1, 2, 2});
  EXPECT_EQ(w.plan.groups(), 1U);
  EXPECT_THAT(w.plan.services(), ElementsAre(service::hit, service::hit, service::fill));
  EXPECT_EQ(precision_of(w, 0), 2);
  EXPECT_EQ(precision_of(w, 1), 1);
  EXPECT_EQ(precision_of(w, 2), 0);
  EXPECT_EQ(w.stats().precision_misses, 0U);
  EXPECT_EQ(w.stats().misses, 3U);
}

TEST_F(pager_precision, a_low_copy_that_is_not_used_is_a_precision_miss) {
  auto w = walk_told({2, 1, 2});
  script.decisions = {{4_expert, fetch_at(2_precision)},
                      {5_expert, fetch_at(2_precision)},
                      {6_expert, fetch_at(1_precision)}};
  w.visit(0, 0, {3, 4, 5, 6});
  journal.clear();
  script.decisions = {{4_expert, on_host}, {5_expert, dropped}, {6_expert, substituted}};
  script.stand_ins = {{6_expert, 3_expert}};
  w.visit(1, 0, {4, 5, 6, 3});
  EXPECT_THAT(w.plan.routed(), ElementsAre(4, -1, 3, 3));
  EXPECT_THAT(w.plan.experts(), ElementsAre(4, 3));
  EXPECT_THAT(w.plan.services(), ElementsAre(service::host, service::hit));
  EXPECT_THAT(w.plan.slots(), ElementsAre(no_slot, 0));
  EXPECT_EQ(w.plan.host_count(), 1U);
  EXPECT_THAT(journal, ElementsAre("hit 3 slot 0 pool 0 precision 0",
                                   "bypass 4 slot -1 pool 0 precision 0"));
  EXPECT_EQ(precision_of(w, 4), 2) << "the low copy stays for other uses";
  const auto s = w.stats();
  EXPECT_EQ(s.hits, 1U);
  EXPECT_EQ(s.misses, 4U + 3);
  EXPECT_EQ(s.precision_misses, 3U);
  EXPECT_EQ(s.capacity_misses(), 0U);
  EXPECT_EQ(s.fills + s.bypasses + s.dropped_misses + s.substituted_misses, s.misses);
}

TEST_F(pager_precision, a_host_that_computes_low_copies_does_so_in_every_group) {
  auto w = walk({1, 1, 1});
  script.decisions = {{0_expert, fetch_at(2_precision)}};
  w.visit(0, 0, {0, 0});
  script.decisions = {{0_expert, on_host}};
  std::size_t groups = 0;
  ASSERT_EQ(w.try_plan(1, 0, {0, 1, 2, 3, 0, 4, 5, 6}), status::ok);
  do {
    ++groups;
    for (std::size_t i = 0; i < w.plan.experts().size(); ++i) {
      EXPECT_EQ(w.plan.services()[i] == service::host, w.plan.experts()[i] == 0);
      EXPECT_EQ(w.plan.slots()[i] == no_slot, w.plan.experts()[i] == 0);
    }
  } while (w.next_group());
  EXPECT_GT(groups, 1U);
  EXPECT_EQ(w.stats().precision_misses, 1U);
  EXPECT_EQ(w.stats().bypasses, 1U);
  EXPECT_EQ(w.stats().fills + w.stats().bypasses, w.stats().misses);
}

TEST_F(pager_precision, an_upgrade_that_admission_refuses_is_left_on_the_host) {
  pager_walk<pager<lru, picky, scripted_miss>> w(
      {.layout = ladder({2, 1, 1}), .admission = {{4_expert}}, .miss = {&script}});
  script.prefetched = 2_precision;
  w.arrive(w.prefetch(0, 0, {{{0_layer, 4_expert}, 1}}));
  ASSERT_EQ(precision_of(w, 4), 2);
  script.decisions = {{4_expert, fetch_at(0_precision)}};
  w.visit(1, 0, {4, 3});
  EXPECT_THAT(w.plan.services(), ElementsAre(service::host, service::fill));
  EXPECT_EQ(w.plan.slots()[0], no_slot);
  EXPECT_EQ(precision_of(w, 4), 2);
  const auto s = w.stats();
  EXPECT_EQ(s.precision_misses, 1U);
  EXPECT_EQ(s.bypasses, 1U);
  EXPECT_EQ(s.fills + s.bypasses, s.misses);
}

TEST_F(pager_precision, a_prefetch_is_made_at_the_policys_precision) {
  auto w = walk_told({2, 2, 2});
  script.prefetched = 1_precision;
  const auto fills = w.prefetch(0, 0, {{{1_layer, 4_expert}, 0}});
  ASSERT_THAT(fills, SizeIs(1));
  EXPECT_EQ(fills[0].precision, 1);
  EXPECT_EQ(fills[0].slot, 2);
  EXPECT_THAT(journal, ElementsAre("prefetch 4 slot 2 pool 1 precision 1"));
  EXPECT_EQ(w.stats().bytes_prefetched, 40U);
  EXPECT_EQ(w.stats().bytes_prefetch_pending(), 40U);
  EXPECT_EQ(w.decisions.resident_bytes(1_pool), 40U);
  script.prefetched = 9_precision;
  EXPECT_EQ(w.prefetch(0, 0, {{{1_layer, 5_expert}, 0}}).at(0).precision, 2)
      << "there is nothing lower";
  journal.clear();
  w.prefetch(0, 0, {{{1_layer, 4_expert}, 1}});
  EXPECT_THAT(journal, ElementsAre("request 4 slot 2 pool 1 precision 1"));
}

TEST_F(pager_precision, a_prefetched_low_copy_that_its_first_use_upgrades_is_wasted) {
  auto w = walk({2, 1, 2});
  script.prefetched = 2_precision;
  w.arrive(w.prefetch(0, 0, {{{0_layer, 4_expert}, 0}}));
  script.decisions = {{4_expert, fetch_at(0_precision)}};
  w.visit(0, 0, {4, 3});
  const auto s = w.stats();
  EXPECT_EQ(s.prefetch_hits, 0U);
  EXPECT_EQ(s.wasted_prefetches, 1U);
  EXPECT_EQ(s.bytes_prefetch_wasted, 10U);
  EXPECT_EQ(s.bytes_prefetch_pending(), 0U);
}

TEST_F(pager_precision, a_prefetch_evicts_in_its_own_pool_only) {
  auto w = walk({2, 1, 3});
  w.visit(0, 0, {0, 1});
  script.decisions = {{2_expert, fetch_at(2_precision)},
                      {3_expert, fetch_at(2_precision)},
                      {4_expert, fetch_at(2_precision)}};
  w.visit(0, 0, {2, 3, 4, 2});
  script.prefetched = 2_precision;
  const auto fills = w.prefetch(0, 0, {{{1_layer, 7_expert}, 0}});
  ASSERT_THAT(fills, SizeIs(1));
  EXPECT_EQ(fills[0].victim, (expert_key{0_layer, 3_expert}))
      << "0 and 1 are older, in another pool";
}

// Otherwise the next visit could find all of them pending.
TEST_F(pager_precision, prefetches_leave_room_for_one_token_in_all_pools_together) {
  const geometry three{.layers = 1,
                       .experts = 8,
                       .top_k = 3,
                       .max_tokens_per_visit = 1,
                       .expert_bytes = {100},
                       .lower_precisions = {{40}}};
  for (const std::vector<std::int64_t>& slots :
       {std::vector<std::int64_t>{2, 1}, std::vector<std::int64_t>{1, 3},
        std::vector<std::int64_t>{1, 2}, std::vector<std::int64_t>{4, 1}}) {
    SCOPED_TRACE(testing::Message() << slots[0] << ' ' << slots[1]);
    pager_walk<decided> w(
        {.layout = pool_layout::shared_by_precision(three, slots).value(), .miss = {&script}});
    for (const auto p : each<precision_id>(2)) {
      script.prefetched = p;
      const auto first = static_cast<expert_id>(4 * number(p));
      w.prefetch(0, 0,
                 {{{0_layer, first}, 5}, {{0_layer, first + 1}, 5}, {{0_layer, first + 2}, 5}});
    }
    const auto fills = w.stats().speculative_fills;
    EXPECT_LE(fills, static_cast<std::uint64_t>(slots[0] + slots[1] - 3));
    EXPECT_EQ(fills != 0, slots[0] + slots[1] > 3) << "no more is kept than a token needs";
    std::vector<expert_id> absent;
    for (auto e = 0_expert; e < 8 && absent.size() < 3; ++e)
      if (w.decisions.locate({0_layer, e}) == no_slot) absent.push_back(e);
    EXPECT_EQ(w.try_plan(0, 0, absent), status::ok);
  }
}

TEST_F(pager_precision, a_warm_start_fills_the_highest_precision) {
  auto w = walk({2, 1, 1});
  script.prefetched = 2_precision;
  const std::vector<expert_key> keys{{0_layer, 1_expert}, {1_layer, 4_expert}, {0_layer, 2_expert}};
  ASSERT_EQ(w.decisions.plan_warm(keys, w.plan).code, status::ok);
  ASSERT_THAT(w.plan.fills(), SizeIs(2)) << "its slots only";
  const std::vector<fill> fills(w.plan.fills().begin(), w.plan.fills().end());
  ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
  w.arrive(fills);
  EXPECT_EQ(precision_of(w, 1), 0);
  EXPECT_EQ(precision_of(w, 4, 1), 0);
  EXPECT_EQ(w.stats().bytes_warm, 200U);
}

TEST_F(pager_precision, invalidate_forgets_a_key_whatever_its_precision) {
  auto w = walk({2, 1, 1});
  script.decisions = {{4_expert, fetch_at(2_precision)}, {5_expert, fetch_at(1_precision)}};
  w.visit(0, 0, {3, 4, 5, 5});
  ASSERT_EQ(w.decisions.invalidate(expert_key{0_layer, 4_expert}), status::ok);
  support::expect_consistent(w.decisions);
  EXPECT_EQ(precision_of(w, 4), -1);
  const auto pin = w.decisions.pin(w.decisions.locate({0_layer, 5_expert}));
  EXPECT_EQ(w.decisions.invalidate(0_layer), status::busy) << "a low copy is read";
  EXPECT_THAT(w.placed(0), ElementsAre(3, 5));
  w.decisions.unpin(pin);
  ASSERT_EQ(w.decisions.invalidate(0_layer), status::ok);
  EXPECT_THAT(w.placed(0), IsEmpty());
  support::expect_consistent(w.decisions);
}

TEST_F(pager_precision, trim_is_by_pool) {
  auto w = walk({2, 2, 1});
  script.decisions = {{4_expert, fetch_at(1_precision)}, {5_expert, fetch_at(1_precision)}};
  w.visit(0, 0, {0, 1, 4, 5});
  const visit_context low{.pool = 1_pool};
  EXPECT_EQ(w.decisions.trim(low, 40, {}), 1U);
  EXPECT_THAT(w.placed(0), ElementsAre(0, 1, 5));
  EXPECT_EQ(w.decisions.resident_bytes(0_pool), 200U);
  EXPECT_EQ(w.decisions.resident_bytes(1_pool), 40U);
  support::expect_consistent(w.decisions);
}

TEST_F(pager_precision, a_quota_may_be_small_if_other_precisions_hold_the_rest) {
  const std::vector<std::int64_t> quotas{2, 1, 1};
  auto narrow = shape;
  narrow.top_k = 3;
  pager_walk<told> w({.layout = pool_layout::per_layer_by_precision(narrow, quotas).value(),
                      .eviction = {&journal},
                      .miss = {&script}});
  EXPECT_EQ(w.decisions.least_quota(0_layer), 1);
  EXPECT_EQ(w.decisions.set_quota(0_layer, 1), status::ok);
  EXPECT_EQ(w.decisions.set_quota(0_layer, 0), status::invalid_argument);
  EXPECT_EQ(w.decisions.set_quota(0_layer, 2), status::ok) << "its own size again";
}

TEST_F(pager_precision, a_quota_is_of_the_highest_precision_and_moves_between_layers) {
  const std::vector<std::int64_t> quotas{3, 2, 1};
  pager_walk<told> w({.layout = pool_layout::per_layer_by_precision(shape, quotas).value(),
                      .eviction = {&journal},
                      .miss = {&script}});
  EXPECT_EQ(w.decisions.quota(0_layer), 3);
  script.decisions = {{3_expert, fetch_at(1_precision)}, {4_expert, fetch_at(2_precision)}};
  w.visit(0, 0, {0, 1, 2, 2});
  w.visit(0, 0, {3, 4});
  EXPECT_EQ(w.decisions.set_quota(1_layer, 4), status::exceeds_memory);
  journal.clear();
  ASSERT_EQ(w.decisions.set_quota(0_layer, 2), status::ok);
  support::expect_consistent(w.decisions);
  EXPECT_THAT(journal, ElementsAre("evict 0 slot 0"));
  EXPECT_THAT(w.placed(0), ElementsAre(1, 2, 3, 4));
  ASSERT_EQ(w.decisions.set_quota(1_layer, 4), status::ok);
  w.visit(1, 1, {0, 1, 2, 5});
  EXPECT_EQ(w.decisions.slot(0_slot).key.layer, 1) << "the slot that layer 0 gave up";
  for (const auto e : {0, 1, 2, 5}) EXPECT_EQ(precision_of(w, e, 1), 0);
  EXPECT_EQ(w.decisions.resident_bytes(w.decisions.layout().pool_of(1_layer, 0_precision)), 400U);
  journal.clear();
  w.visit(2, 1, {6, 6});
  EXPECT_THAT(journal, ElementsAre("evict 0 slot 0", "fill 6 slot 0 pool 3 precision 0"));
}

// A miss without room uses a lower precision, so outputs may change with any policy.
TEST_F(pager_precision, is_never_exact) {
  EXPECT_FALSE((pager<lru, always, compute_on_host>({.layout = ladder({2, 1, 1})}).is_exact()));
}

// The rules above with a library policy; hits of low copies stay hits.
TEST_F(pager_precision, fetch_lowest_fills_the_lowest_pool_first) {
  pager_walk<pager<lru, always, fetch_lowest>> w({.layout = ladder({2, 2, 3})});
  w.visit(0, 0, {0, 1, 2, 3});
  EXPECT_EQ(precision_of(w, 0), 2);
  EXPECT_EQ(precision_of(w, 3), 1) << "up, for nothing is below";
  w.visit(1, 0, {0, 3});
  EXPECT_EQ(w.stats().hits, 2U);
  EXPECT_EQ(w.stats().bytes_demand, 10U * 3 + 40);
}

}  // namespace
}  // namespace hotset::pager_precision_test
