// SPDX-License-Identifier: Apache-2.0
/// Traces short enough to walk by hand, with the victims in the comments.

#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lab/replay/sweep.hpp"
#include "sim_samples.hpp"

namespace hand_walked_test {
namespace {

using namespace hotset;
using support::one_layer;
using support::one_run;
using testing::ElementsAre;

/// Victims in the order of the fills, as "layer.expert"; "-" for a free slot.
std::vector<std::string> victims(const routing_trace& trace, const std::string& eviction,
                                 const std::string& slots, const std::string& scope = "shared",
                                 const std::string& admission = "always",
                                 visit_split split = visit_split::by_token) {
  auto request = support::sweep_of({eviction, scope, slots, "event-atomic", admission, split});
  std::ostringstream log;
  request.decisions = &log;
  (void)lab::run_sweep(trace, request);
  std::istringstream in(log.str());
  std::vector<std::string> out;
  for (std::string line; std::getline(in, line);) {
    std::string of_visit;
    const auto decided = nlohmann::json::parse(line);
    for (const auto& f : decided["fills"]) {
      if (!of_visit.empty()) of_visit += ' ';
      of_visit += f.contains("victim") ? std::to_string(f["victim"][0].get<int>()) + '.' +
                                             std::to_string(f["victim"][1].get<int>())
                                       : "-";
    }
    out.push_back(of_visit);
  }
  return out;
}
/// Victims of a trace with one layer, as experts only.
std::vector<std::string> victims_of_layer(const routing_trace& trace, const std::string& eviction,
                                          const std::string& slots,
                                          const std::string& admission = "always") {
  auto out = victims(trace, eviction, slots, "shared", admission);
  for (auto& of_visit : out)
    for (auto at = of_visit.find("0."); at != std::string::npos; at = of_visit.find("0."))
      of_visit.erase(at, 2);
  return out;
}

// Three layers, two slots each, top-2: {0,1} {0,2} {0,1} {0,3} {0,1}. After the first step one expert of each
// visit hits (0) and one misses: 3 layers x (5 x 2) = 30 accesses, 3 x 4 = 12 hits, 18 misses.
TEST(hand_walked, the_event_atomic_toy_has_12_hits_and_18_misses_of_30) {
  auto trace = support::empty_trace(3, 4, 2);
  for (const auto other : {1, 2, 1, 3, 1})
    support::add_step(trace, {{0, other, 0, other, 0, other}});
  const auto s = one_run(trace, {"lru", "per-layer", "2"}).stats;
  EXPECT_EQ(s.visits, 15U);
  EXPECT_EQ(s.accesses, 30U);
  EXPECT_EQ(s.hits, 12U);
  EXPECT_EQ(s.misses, 18U);
  EXPECT_EQ(s.fills, 18U);
  EXPECT_EQ(s.evictions, 12U);
  EXPECT_EQ(s.compulsory_misses, 12U);
  EXPECT_EQ(s.collision_misses, 0U);
  EXPECT_EQ(s.steps_with_miss, 5U);
  for (const auto& layer : s.per_layer) EXPECT_EQ(layer, (layer_counts{{10, 4}, 4, 6}));
}

// Access by access, 0 would be evicted for 2 before the lookup of 0: {2,0} then has no hit.
TEST(hand_walked, per_access_the_toy_is_judged_otherwise) {
  const auto trace = one_layer(4, {{0, 1}, {2, 0}});
  EXPECT_EQ(one_run(trace, {"lru", "per-layer", "2"}).stats.hits, 1U);
  EXPECT_EQ(one_run(trace, {"lru", "per-layer", "2", "per-access"}).stats.hits, 0U);
}

/// Three slots. 0 is used often and early, 1 late, 2 once.
routing_trace mixed() { return one_layer(6, {{0}, {0}, {1}, {2}, {1}, {3}, {0}, {4}, {2}}); }

// {3}: of 0, 2, 1 by recency, 0 is evicted. {0}: evicts 2. {4}: evicts 1. {2}: evicts 3.
TEST(hand_walked, lru) {
  EXPECT_THAT(victims_of_layer(mixed(), "lru", "3"),
              ElementsAre("-", "", "-", "-", "", "0", "2", "1", "3"));
}

// {3}: arrival order 0, 1, 2: evicts 0. {0}: evicts 1. {4}: evicts 2. {2}: evicts 3.
TEST(hand_walked, fifo) {
  EXPECT_THAT(victims_of_layer(mixed(), "fifo", "3"),
              ElementsAre("-", "", "-", "-", "", "0", "1", "2", "3"));
}

// Counts 0:2 1:2 2:1. {3}: evicts 2. 0 hits (3). {4}: evicts 3, which has 1. 2 returns with count 2: evicts 4 with 1.
TEST(hand_walked, lfu_over_the_whole_history) {
  EXPECT_THAT(victims_of_layer(mixed(), "lfu", "3"),
              ElementsAre("-", "", "-", "-", "", "2", "", "3", "4"));
}

// At the end 0 and 2 are resident. Over the whole history both have 3 uses and 0 is less recent: 5 evicts 0. Since
// its last fill 2 has one use: 5 evicts 2.
TEST(hand_walked, lfu_since_the_fill) {
  const auto trace = one_layer(6, {{0}, {0}, {0}, {2}, {1}, {1}, {2}, {4}, {2}, {5}});
  // Two slots. {1}: evicts 2 (1 use; 0 has 3). {2}: evicts 1 (2 uses). {4}: evicts 2 (2). {2}: evicts 4 (1). {5}:
  // evicts 0, a tie of 3.
  EXPECT_THAT(victims_of_layer(trace, "lfu", "2"),
              ElementsAre("-", "", "", "-", "2", "", "1", "2", "4", "0"));
  // {1} evicts 2. {2} evicts 1 (2 uses). {4} evicts 2 (1). {2} evicts 4 (1). {5} evicts 2 (1).
  EXPECT_THAT(victims_of_layer(trace, "lfu:history=resident", "2"),
              ElementsAre("-", "", "", "-", "2", "", "1", "2", "4", "2"));
}

// d = 0.5; at step t the key is f d^(t - last) / (t - last + 1).
// Step 3: 0 has f = 1 + 1/2 (last 1): 1.5 / 4 / 3 = 0.125; 1 (last 2): 1 / 2 / 2 = 0.25. Evicts 0.
// Step 4, {0}: 1: 1 / 4 / 3; 2: 1 / 2 / 2. Evicts 1. 0 kept its frequency: 1.5 / 8 + 1 = 1.1875 (last 4).
// Step 5, {1}: 2 (last 3): 1 / 4 / 3 = 0.083; 0: 1.1875 / 2 / 2 = 0.297. Evicts 2.
TEST(hand_walked, lfru) {
  const auto trace = one_layer(4, {{0}, {0}, {1}, {2}, {0}, {1}});
  EXPECT_THAT(victims_of_layer(trace, "lfru:decay=0.5", "2"),
              ElementsAre("-", "", "-", "0", "1", "2"));
}

// Three layers, one expert per step each, two slots. At layer 2 of step 0 the distances (l - 2 - 1) mod 3 are 0 for
// layer 0 and 1 for layer 1: evicts 1.0. Step 1, layer 0 (expert 1): residents of layers 0 and 2 have distances 2 and
// 1: evicts 0.0. Layer 1: residents 2.0 (0) and 0.1 (2): evicts 0.1. Layer 2 (expert 0) hits.
TEST(hand_walked, furthest_layer) {
  auto trace = support::empty_trace(3, 2, 1);
  support::add_step(trace, {{0, 0, 0}});
  support::add_step(trace, {{1, 1, 0}});
  EXPECT_THAT(victims(trace, "furthest_layer", "2"),
              ElementsAre("-", "-", "1.0", "0.0", "0.1", ""));
}

// Scores 0: 0.5 + 0.25 = 0.75, 1: 0.5, 2: 0.625. {3} with 1.0 evicts 1 (0.5). {1} with 0.5 evicts 2 (0.625); 1 kept
// its score and has 1.0. {2} with 0.25 evicts 0 (0.75); 2 has 0.875. {0} with 0.125 evicts 2 (0.875).
TEST(hand_walked, gate_score) {
  auto trace = one_layer(4, {{0}, {0}, {1}, {2}, {3}, {1}, {2}, {0}});
  trace.weights = {.5F, .25F, .5F, .625F, 1.F, .5F, .25F, .125F};
  EXPECT_THAT(victims_of_layer(trace, "gate_score", "3"),
              ElementsAre("-", "", "-", "-", "1", "2", "0", "2"));
}

// Two layers, three slots. Step 0: 0.0, 1.0. Step 1: 0.1 takes the free slot. 1.1: 0.0 and 1.0 are stale, 0.1 is
// current: evicts 0.0. Step 2: 0.2: all are stale and layer 0 has passed: evicts 0.1. 1.0 hits and is current.
// Step 3: 0.0 evicts the stale 0.2. 1.2: layer 1 is running, so all are left; 1.0 and 1.1 are stale: 1.0 arrived
// first.
TEST(hand_walked, least_stale) {
  auto trace = support::empty_trace(2, 3, 1);
  for (const auto& ids : std::vector<support::token_row>{{0, 0}, {1, 1}, {2, 0}, {0, 2}})
    support::add_step(trace, {ids});
  for (const auto* order : {"least_stale", "least_stale:order=layer"})
    EXPECT_THAT(victims(trace, order, "3"),
                ElementsAre("-", "-", "-", "0.0", "0.1", "", "0.2", "1.0"));
}

// Three layers of one expert per token, four slots. Step 0: 0.0, 1.0, 2.0. Step 1: 0.1 takes the free slot. 1.1:
// stale and left are 0.0 and 1.0: evicts 0.0. 2.1: stale and left are 1.0 and 2.0: evicts 1.0.
// Cached: 0.1, 1.1, 2.0, 2.1.
// Step 2: 0.2: only 0.1 is stale and left: evicts it. 1.2 evicts 1.1. 2.2 evicts 2.0, which arrived before 2.1.
// Cached: 0.2, 1.2, 2.1, 2.2.
// Step 3: 0.2 hits. 1.3 evicts 1.2, stale and left. 2.0 evicts 2.1. Cached: 0.2, 1.3, 2.0, 2.2.
// Step 4: 0.0 evicts 0.2. 1.3 and 2.2 hit. Step 5: 0.0 and 1.3 hit. 2.1: 2.0 and 2.2 are stale, 2.2 arrived first.
TEST(hand_walked, least_stale_evicts_layers_that_have_passed) {
  auto trace = support::empty_trace(3, 4, 1);
  for (const auto& ids : std::vector<support::token_row>{
           {0, 0, 0}, {1, 1, 1}, {2, 2, 2}, {2, 3, 0}, {0, 3, 2}, {0, 3, 1}})
    support::add_step(trace, {ids});
  EXPECT_THAT(victims(trace, "least_stale", "4"),
              ElementsAre("-", "-", "-", "-", "0.0", "1.0", "0.1", "1.1", "2.0", "", "1.2", "2.1",
                          "0.2", "", "", "", "", "2.2"));
}

// Step 0 fills 0.0 1.0 2.0 3.0. Step 1: layer 0 needs 0.1 beside 0.0, which the visit protects; no other key is to the
// left. 1.0, 2.0 and 3.0 are ahead and stale: evicts 3.0, the farthest. 1.0 and 2.0 hit. 3.0 evicts 0.0, which is
// current and arrived before 0.1. By layer, the nearest is evicted, and each layer evicts the next one's expert.
TEST(hand_walked, least_stale_evicts_the_farthest_layer_and_by_layer_the_nearest) {
  auto trace = support::empty_trace(4, 4, 1);
  support::add_step(trace, {{0, 0, 0, 0}});
  support::add_step(trace, {{0, 0, 0, 0}, {1, 0, 0, 0}});
  EXPECT_THAT(victims(trace, "least_stale", "4"),
              ElementsAre("-", "-", "-", "-", "3.0", "", "", "0.0"));
  EXPECT_THAT(victims(trace, "least_stale:order=layer", "4"),
              ElementsAre("-", "-", "-", "-", "1.0", "2.0", "3.0", "0.0"));
}

// The trace of the test above, by recency. Step 1: 1.1 evicts 0.0. Step 2: 0.2 evicts 1.0; 1.0 evicts 0.1.
// Step 3: 0.0 evicts 1.1; 1.2 evicts 0.2.
TEST(hand_walked, least_stale_by_last_access_orders_by_recency) {
  auto trace = support::empty_trace(2, 3, 1);
  for (const auto& ids : std::vector<support::token_row>{{0, 0}, {1, 1}, {2, 0}, {0, 2}})
    support::add_step(trace, {ids});
  EXPECT_THAT(victims(trace, "least_stale:order=last_access", "3"),
              ElementsAre("-", "-", "-", "0.0", "1.0", "0.1", "1.1", "0.2"));
}

// Uses in the whole trace: 0: 3, 1: 2, 2: 2, 3: 1, 4: 1. {3}: 1 and 2 tie, 2 is less recent: evicts 2. {4} evicts 3.
// {2} evicts 4.
TEST(hand_walked, popularity_of_the_trace_itself) {
  EXPECT_THAT(victims_of_layer(mixed(), "popularity", "3"),
              ElementsAre("-", "", "-", "-", "", "2", "", "3", "4"));
}

// Uses by the first four tokens: 0: 2, 1: 1, 2: 1, others 0. {3} evicts 2, because 1 is more recent. {4} evicts 3.
// {2} evicts 4.
TEST(hand_walked, popularity_of_the_first_tokens) {
  EXPECT_THAT(victims_of_layer(mixed(), "popularity:first=4", "3"),
              ElementsAre("-", "", "-", "-", "", "2", "", "3", "4"));
}

// {3} at visit 5: 0 is next used at 6, 2 at 8, 1 never: evicts 1. 0 hits. {4} at 7: 2 at 8; 0 and 3 never, 3 is less
// recent: evicts 3. 2 hits.
TEST(hand_walked, belady) {
  EXPECT_THAT(victims_of_layer(mixed(), "belady", "3"),
              ElementsAre("-", "", "-", "-", "", "1", "", "3", ""));
}

// One slot, {0} {1} {0}: with forced admission 1 evicts 0: 3 misses. With bypass, 0 stays and hits.
TEST(hand_walked, belady_bypass) {
  const auto trace = one_layer(4, {{0}, {1}, {0}});
  EXPECT_EQ(one_run(trace, {"belady", "shared", "1"}).stats.misses, 3U);
  EXPECT_EQ(one_run(trace, {"belady_bypass", "shared", "1"}).stats.misses, 2U);
}

// A key is hot from its second use on. {3}: 0, the least recent, and 1 are protected: evicts 2. {4} evicts 3, the
// only cold one. {2} evicts 4.
TEST(hand_walked, protect_hot) {
  EXPECT_THAT(victims_of_layer(mixed(), "protect_hot:uses=2+lru", "3"),
              ElementsAre("-", "", "-", "-", "", "2", "", "3", "4"));
}

// 0 and 1 are decoded in steps 0 and 1. The prompt's {2,3} takes the free slot and needs one victim: 0 and 1 are both
// protected and nothing else is left, so the less recent one, 0, is evicted. {4,5} evicts the prompt's 2 and 3, and 1
// stays; lru alone evicts 1.
TEST(hand_walked, protect_decode) {
  auto trace = support::empty_trace(1, 8, 2);
  support::add_step(trace, {{0, -1}});
  support::add_step(trace, {{1, -1}});
  support::add_step(trace, {{2, 3}}, request_class::prefill);
  support::add_step(trace, {{4, 5}}, request_class::prefill);
  EXPECT_THAT(victims_of_layer(trace, "protect_decode:window=8+lru", "3"),
              ElementsAre("-", "-", "- 0", "2 3"));
  EXPECT_THAT(victims_of_layer(trace, "lru", "3"), ElementsAre("-", "-", "- 0", "1 2"));
}

// A key is admitted at its second miss. 0: no, yes (the free slot), hit. 1: no. 2: no. 1: yes, evicts 0. 0 was
// evicted recently: of its next three misses the third is admitted and evicts 1.
TEST(hand_walked, after_n_uses) {
  const auto trace = one_layer(4, {{0}, {0}, {0}, {1}, {2}, {1}, {0}, {0}, {0}});
  EXPECT_THAT(victims_of_layer(trace, "lru", "1", "after_n_uses"),
              ElementsAre("", "-", "", "", "", "0", "", "", "1"));
  const auto s = one_run(trace, {"lru", "shared", "1", "event-atomic", "after_n_uses"}).stats;
  EXPECT_EQ(s.hits, 1U);
  EXPECT_EQ(s.bypasses, 5U);
  EXPECT_EQ(s.fills, 3U);
}

// One fill per visit, of the most recently used key. {0,1}: neither was used, 0 is the first. {1,2}: 1 was used.
// {0,2}: 0 hits, 2 is admitted and evicts 1. {1,3}: 1 is admitted; 0 and 2 were used together, 0 is less recent:
// evicted.
TEST(hand_walked, budgeted) {
  const auto trace = one_layer(4, {{0, 1}, {1, 2}, {0, 2}, {1, 3}});
  EXPECT_THAT(victims_of_layer(trace, "lru", "2", "budgeted:fills_per_visit=1"),
              ElementsAre("-", "-", "1", "0"));
}

// Two slots, one step of {0,1} {2,3} {0,2}: 2 is resident for the last group; 0 is filled again in the slot of 3. The
// visit has 4 misses; the fifth fill is a refill and no miss.
TEST(hand_walked, a_visit_in_groups) {
  auto trace = support::empty_trace(1, 4, 2);
  support::add_step(trace, {{0, 1}, {2, 3}, {0, 2}}, request_class::prefill);
  EXPECT_THAT(victims_of_layer(trace, "lru", "2"), ElementsAre("- -", "0 1", "3"));
  const auto s = one_run(trace, {"lru", "shared", "2"}).stats;
  EXPECT_EQ(s.misses, 4U);
  EXPECT_EQ(s.fills, 5U);
  EXPECT_EQ(s.groups, 3U);
  EXPECT_EQ(s.collision_misses, 0U);
}

// Two slots, six experts in one visit, by expert: {0,1} {2,3} {4,5} are three events of one visit. {6}: 4 is used in
// the next visit, 5 in the last one: evicts 5. 4 hits. {7}: neither 6 nor 4 is used again, 6 is less recent: evicted.
// {5} evicts 4.
TEST(hand_walked, belady_sees_past_a_visit_that_is_split_by_expert) {
  auto trace = support::empty_trace(1, 8, 1);
  support::add_step(trace, {{0}, {1}, {2}, {3}, {4}, {5}}, request_class::prefill);
  for (const auto id : {6, 4, 7, 5}) support::add_step(trace, {{id}});
  EXPECT_THAT(victims(trace, "belady", "2", "shared", "always", visit_split::by_expert),
              ElementsAre("- -", "0.0 0.1", "0.2 0.3", "0.5", "", "0.6", "0.4"));
}

// Two layers share one slot: every visit evicts the other layer's expert; in step 1, layer 1 misses the expert that
// was evicted in the same step.
TEST(hand_walked, collisions) {
  auto trace = support::empty_trace(2, 2, 1);
  support::add_step(trace, {{0, 0}});
  support::add_step(trace, {{0, 0}});
  const auto s = one_run(trace, {"lru", "shared", "1"}).stats;
  EXPECT_EQ(s.misses, 4U);
  EXPECT_EQ(s.collision_misses, 1U);
}

}  // namespace
}  // namespace hand_walked_test
