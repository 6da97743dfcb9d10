// SPDX-License-Identifier: Apache-2.0
/// Properties of policies on any trace: orders between them, equalities, conservation of counts, and per-access
/// agreement with simulators of a few lines.

#include <algorithm>
#include <list>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "hotset/eviction/fifo.hpp"
#include "hotset/eviction/lfu.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/eviction/protect_decode.hpp"
#include "hotset/eviction/protect_hot.hpp"
#include "lab/replay/registry.hpp"
#include "lab/traces/oracle_general.hpp"
#include "lab/traces/synthetic/synthetic.hpp"
#include "offline_optimum.hpp"
#include "sim_samples.hpp"
#include "trace_samples.hpp"

namespace policies_test {
namespace {

using namespace hotset;
using support::one_run;
using support::random_source;
using support::random_trace;

/// Policies that decide visit by visit, in every distinct form.
const std::vector<std::string>& online() {
  static const std::vector<std::string> names{"lru",
                                              "lfu",
                                              "lfu:history=resident",
                                              "lfu:ageing_period=7",
                                              "lfru",
                                              "lfru:decay=0.5",
                                              "fifo",
                                              "furthest_layer",
                                              "gate_score",
                                              "gate_score:accumulate=ema",
                                              "least_stale",
                                              "least_stale:order=layer",
                                              "least_stale:order=last_access",
                                              "least_stale:order=stale",
                                              "popularity",
                                              "similar_steps",
                                              "similar_steps:rows=256:matches=4",
                                              "two_rate",
                                              "popularity:first=5",
                                              "protect_hot:uses=2+lru",
                                              "protect_decode:window=3+lfu"};
  return names;
}
std::vector<std::string> all_policies() {
  auto names = online();
  names.emplace_back("belady");
  names.emplace_back("next_visit_oracle");
  names.emplace_back("belady_bypass");
  return names;
}

/// A trace of a kind that the seed selects, small enough to replay hundreds of times.
routing_trace any_trace(std::uint64_t seed, std::uint64_t most_tokens) {
  random_source random(seed * 77 + 5);
  if (seed % 3 == 0) {
    synthetic_config config;
    config.layers = 1 + random.id_below(4);
    config.experts = 6 + random.id_below(12);
    config.top_k = 1 + random.id_below(3);
    config.tokens = 60;
    config.prefill = most_tokens > 1 ? 8 : 0;
    config.sequences = most_tokens > 1 ? 3 : 1;
    config.stickiness = 0.4;
    config.phase_length = seed % 2 == 0 ? 20 : 0;
    config.seed = seed;
    return synthetic_trace(config).value();
  }
  return random_trace(seed, {.layers = 1 + random.id_below(4),
                             .experts = 5 + random.id_below(12),
                             .top_k = 1 + random.id_below(4),
                             .steps = 50,
                             .most_tokens = most_tokens,
                             .absent_one_in = seed % 4 == 1 ? 8U : 0U,
                             .skewed = seed % 2 == 0});
}
/// Sizes from the smallest on that split no visit.
std::vector<std::string> whole_sizes(const routing_trace& trace, bool shared) {
  const auto widest = std::max<std::size_t>(visit_sequence(trace).widest_union(),
                                            static_cast<std::size_t>(trace.top_k));
  const auto experts = static_cast<std::size_t>(trace.experts);
  const auto most = shared ? experts * static_cast<std::size_t>(trace.layers) : experts;
  std::vector<std::string> out;
  for (const auto part : {0U, 1U, 3U, 6U})
    out.push_back(std::to_string(widest + (most - widest) * part / 8));
  return out;
}

// --- the offline optimum -----------------------------------------------------------------------------------------

// With forced admission, a kept key occupies a slot at every event between two of its uses, and an event has slots -
// |U| places for kept keys. Choosing keys is a packing of intervals, for which evicting the one that ends last is
// optimal, although an event needs several experts at once. With token groups, a group is an event.
TEST(policies, belady_is_optimal_among_policies_with_forced_admission) {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const std::int32_t layers = seed % 2 == 0 ? 1 : 2;
    const auto trace = random_trace(seed, {.layers = layers,
                                           .experts = 8 / layers,
                                           .top_k = 1 + static_cast<std::int32_t>(seed % 3),
                                           .steps = 9,
                                           .most_tokens = 1 + seed % 4,
                                           .skewed = seed % 5 == 0});
    const visit_sequence visits(trace);
    for (std::int64_t slots = trace.top_k; slots <= 6; ++slots)
      for (const std::string scope : {"shared", "per-layer"}) {
        const auto layout = (scope == "shared" ? pool_layout::shared(visits.shape(), slots)
                                               : pool_layout::per_layer(visits.shape(), slots))
                                .value();
        ASSERT_EQ(one_run(trace, {"belady", scope, std::to_string(slots)}).stats.fills,
                  support::fewest_fills(visits, layout, true))
            << scope << ' ' << slots;
      }
  }
}

TEST(policies, none_makes_fewer_copies_than_belady) {
  for (std::uint64_t seed = 0; seed < 24; ++seed)
    for (const std::uint64_t tokens : {1U, 3U}) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      const auto trace = any_trace(seed, tokens);
      for (const std::string scope : {"shared", "per-layer"})
        for (const auto& slots : whole_sizes(trace, scope == "shared")) {
          const auto bound = one_run(trace, {"belady", scope, slots}).stats;
          ASSERT_EQ(bound.split_visits, 0U);
          ASSERT_EQ(bound.fills, bound.misses);
          for (const auto& name : online())
            ASSERT_LE(bound.fills, one_run(trace, {name, scope, slots}).stats.fills)
                << name << ' ' << scope << ' ' << slots;
          ASSERT_LE(bound.fills, one_run(trace, {"next_visit_oracle", scope, slots}).stats.fills);
        }
    }
}

// Not true of every trace: usage rates may mislead it. Synthetic traces have a popularity that it can learn.
TEST(policies, next_visit_oracle_copies_at_most_as_many_as_lru_on_skewed_traffic) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto trace = any_trace(seed * 3, 1);
    std::uint64_t knowing = 0;
    std::uint64_t recent = 0;
    for (const std::string scope : {"shared", "per-layer"})
      for (const auto& slots : whole_sizes(trace, scope == "shared")) {
        knowing += one_run(trace, {"next_visit_oracle", scope, slots}).stats.fills;
        recent += one_run(trace, {"lru", scope, slots}).stats.fills;
      }
    ASSERT_LE(knowing, recent);
  }
}

TEST(policies, no_policy_copies_less_than_belady_if_visits_are_split) {
  std::uint64_t split = 0;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto trace = any_trace(seed, 6);
    for (const std::string scope : {"shared", "per-layer"})
      for (const auto extra : {0, 1, 2}) {
        const auto slots = std::to_string(trace.top_k + extra);
        const auto bound = one_run(trace, {"belady", scope, slots}).stats;
        split += bound.split_visits;
        for (const auto& name : online())
          ASSERT_LE(bound.fills, one_run(trace, {name, scope, slots}).stats.fills)
              << name << ' ' << scope << ' ' << slots;
      }
  }
  EXPECT_GT(split, 1000U);
}

// --- equalities --------------------------------------------------------------------------------------------------

TEST(policies, lru_never_misses_more_with_more_slots) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto trace = any_trace(seed, 1 + seed % 3);
    for (const std::string scope : {"shared", "per-layer"}) {
      const auto most = static_cast<std::size_t>(trace.experts) *
                        (scope == "shared" ? static_cast<std::size_t>(trace.layers) : 1U);
      auto slots = std::max<std::size_t>(visit_sequence(trace).widest_union(),
                                         static_cast<std::size_t>(trace.top_k));
      auto before = one_run(trace, {"lru", scope, std::to_string(slots)}).stats.misses;
      while (++slots <= most) {
        const auto now = one_run(trace, {"lru", scope, std::to_string(slots)}).stats.misses;
        ASSERT_LE(now, before) << scope << ' ' << slots;
        before = now;
      }
    }
  }
}

TEST(policies, least_stale_in_a_pool_of_one_layer_is_fifo) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto trace = any_trace(seed, 1 + seed % 3);
    for (const auto& slots : whole_sizes(trace, false)) {
      const auto arrival = one_run(trace, {"fifo", "per-layer", slots});
      for (const auto* order :
           {"least_stale", "least_stale:order=layer", "least_stale:order=stale"}) {
        const auto stale = one_run(trace, {order, "per-layer", slots});
        ASSERT_EQ(stale.decision_hash, arrival.decision_hash) << order << ' ' << slots;
        ASSERT_EQ(stale.stats, arrival.stats);
      }
    }
  }
}

// Three slots hold 0, 1, 4, in order of arrival. The first group uses 0 and 1, which are then current: for the second
// group least_stale evicts 4 and 0, fifo 0 and 1.
TEST(policies, per_layer_least_stale_differs_from_fifo_if_visits_are_split) {
  auto trace = support::empty_trace(1, 8, 2);
  support::add_step(trace, {{0, 1}});
  support::add_step(trace, {{1, 4}});
  support::add_step(trace, {{0, 1}, {2, 3}}, request_class::prefill);
  support::add_step(trace, {{1, 4}});
  EXPECT_EQ(one_run(trace, {"least_stale", "per-layer", "3"}).stats.hits, 1U + 2U + 1U);
  EXPECT_EQ(one_run(trace, {"fifo", "per-layer", "3"}).stats.hits, 1U + 2U + 1U);
  EXPECT_NE(one_run(trace, {"least_stale", "per-layer", "3"}).decision_hash,
            one_run(trace, {"fifo", "per-layer", "3"}).decision_hash);
}

TEST(policies, least_stale_by_last_access_is_lru_while_nothing_is_prefetched) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto trace = any_trace(seed, 1 + seed % 5);
    for (const std::string replay : {"event-atomic", "per-access", "deferred"})
      for (const auto extra : {0, 2, 9}) {
        const auto slots = std::to_string(trace.top_k + extra) + (replay == "deferred" ? "B" : "");
        const auto stale =
            one_run(trace, {"least_stale:order=last_access", "shared", slots, replay});
        const auto recency = one_run(trace, {"lru", "shared", slots, replay});
        ASSERT_EQ(stale.decision_hash, recency.decision_hash) << replay << ' ' << slots;
        ASSERT_EQ(stale.stats, recency.stats);
      }
  }
}

template <class P>
std::uint64_t hash_of(const visit_sequence& visits, const pool_layout& layout,
                      typename P::config options) {
  pager<P> held({.layout = layout, .eviction = std::move(options)});
  auto plan = held.make_plan();
  for (std::size_t i = 0; i < visits.size(); ++i)
    EXPECT_EQ(held.serve(visits[i], plan, [](const visit_group&) {}), status::ok);
  return held.decision_hash();
}

TEST(policies, composed_at_run_time_decide_as_composed_at_compile_time) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto trace = any_trace(seed, 4);
    const visit_sequence visits(trace);
    for (const bool shared : {true, false}) {
      const auto slots = trace.top_k + 2;
      const auto layout = (shared ? pool_layout::shared(visits.shape(), slots)
                                  : pool_layout::per_layer(visits.shape(), slots))
                              .value();
      const auto by_name = [&](const std::string& name) {
        auto pager = lab::make_pager({name, "always", layout});
        lab::replay(visits, {}, pager);
        return pager.decision_hash();
      };
      EXPECT_EQ(by_name("protect_hot:uses=2+lru"),
                hash_of<protect_hot<lru>>(visits, layout, {2, {}}));
      EXPECT_EQ(by_name("protect_hot+fifo"), hash_of<protect_hot<fifo>>(visits, layout, {}));
      EXPECT_EQ(by_name("protect_decode:window=2+lfu:history=resident"),
                hash_of<protect_decode<lfu>>(visits, layout, {2, {lfu_history::resident, 0}}));
      EXPECT_EQ(by_name("protect_decode:window=4+protect_hot:uses=3+lru"),
                (hash_of<protect_decode<protect_hot<lru>>>(visits, layout, {4, {3, {}}})));
      for (const auto& name : online()) {
        if (name.starts_with("popularity")) continue;
        EXPECT_EQ(hash_of<any_eviction_policy>(visits, layout,
                                               lab::asked(policies().make_eviction(name))),
                  by_name(name))
            << name;
      }
    }
  }
}

// --- conservation ------------------------------------------------------------------------------------------------

void expect_conserved(const pager_stats& s) {
  EXPECT_EQ(s.hits + s.misses, s.accesses);
  EXPECT_GE(s.fills + s.bypasses, s.misses) << "the rest are refills";
  if (s.split_visits == 0) {
    EXPECT_EQ(s.fills + s.bypasses, s.misses);
  }
  EXPECT_LE(s.evictions, s.fills);
  EXPECT_LE(s.compulsory_misses + s.collision_misses, s.misses);
  EXPECT_LE(s.steps_with_miss, s.steps);
  EXPECT_EQ(s.speculative_fills + s.prefetch_hits + s.refused_prefetches + s.failed_fills, 0U);
  const auto sum = [](const auto& parts) {
    access_counts total;
    for (const auto& part : parts) {
      total.accesses += part.accesses;
      total.hits += part.hits;
    }
    return total;
  };
  EXPECT_EQ(sum(s.by_kind), (access_counts{s.accesses, s.hits}));
  EXPECT_EQ(sum(s.per_layer), (access_counts{s.accesses, s.hits}));
  layer_counts layers;
  for (const auto& one : s.per_layer) {
    layers.compulsory += one.compulsory;
    layers.collisions += one.collisions;
    layers.bytes_filled += one.bytes_filled;
  }
  EXPECT_EQ(layers.compulsory, s.compulsory_misses);
  EXPECT_EQ(layers.collisions, s.collision_misses);
  EXPECT_EQ(layers.bytes_filled, s.bytes_filled);
}

TEST(policies, counts_add_up) {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    const auto trace = any_trace(seed, 1 + seed % 6);
    const visit_sequence visits(trace);
    for (const auto& name : all_policies())
      for (const std::string scope : {"shared", "per-layer"})
        for (const std::string replay : {"event-atomic", "deferred", "per-access"})
          for (const std::string admission :
               {"always", "after_n_uses", "budgeted:fills_per_visit=1", "least_valuable"}) {
            if (name == "belady_bypass" && (admission != "always" || replay == "deferred"))
              continue;
            SCOPED_TRACE("seed " + std::to_string(seed) + ' ' + name + ' ' + scope + ' ' + replay +
                         ' ' + admission);
            const auto run =
                one_run(trace, {name, scope,
                                std::to_string(trace.top_k + 1) + (replay == "deferred" ? "B" : ""),
                                replay, admission});
            expect_conserved(run.stats);
            EXPECT_EQ(run.stats.accesses,
                      replay == "per-access" ? visits.routed() : visits.accesses());
            EXPECT_EQ(run.stats.bytes_filled, run.stats.fills);
          }
  }
}

TEST(policies, with_a_slot_for_every_expert_only_first_uses_miss) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const auto trace = any_trace(seed, 1 + seed % 6);
    for (const auto& name : all_policies())
      for (const std::string scope : {"shared", "per-layer"})
        for (const std::string replay : {"event-atomic", "per-access"}) {
          SCOPED_TRACE("seed " + std::to_string(seed) + ' ' + name + ' ' + scope + ' ' + replay);
          const auto s = one_run(trace, {name, scope, "100%", replay}).stats;
          EXPECT_EQ(s.misses, s.compulsory_misses);
          EXPECT_EQ(s.evictions, 0U);
          EXPECT_EQ(s.collision_misses, 0U);
        }
  }
}

TEST(policies, first_uses_and_accesses_are_the_same_for_every_policy) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto trace = any_trace(seed, 3);
    const auto of = [&](const std::string& name) {
      const auto s = one_run(trace, {name, "shared", std::to_string(trace.top_k + 3)}).stats;
      return std::vector{s.visits, s.steps, s.accesses, s.compulsory_misses, s.ignored_ids};
    };
    for (const auto& name : all_policies()) EXPECT_EQ(of(name), of("lru")) << name;
  }
}

TEST(policies, a_deferred_replay_with_a_budget_for_everything_never_evicts) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const auto trace = any_trace(seed, 4);
    for (const auto& name : online())
      for (const std::string scope : {"shared", "per-layer"}) {
        SCOPED_TRACE("seed " + std::to_string(seed) + ' ' + name + ' ' + scope);
        const auto s = one_run(trace, {name, scope, "1GiB", "deferred"}).stats;
        EXPECT_EQ(s.evictions, 0U);
        EXPECT_EQ(s.misses, s.compulsory_misses);
        EXPECT_EQ(s, one_run(trace, {name, scope, "100%"}).stats);
      }
  }
}

// --- per access, as general cache simulators do ------------------------------------------------------------------
// From the definitions: one object at a time, unit sizes, every miss admitted.

using accesses = std::vector<std::uint64_t>;

std::uint64_t naive_lru(const accesses& trace, std::size_t slots, bool promote) {
  std::list<std::uint64_t> queue;  // the front is evicted next
  std::uint64_t misses = 0;
  for (const auto object : trace) {
    const auto at = std::find(queue.begin(), queue.end(), object);
    if (at != queue.end()) {
      if (promote) queue.splice(queue.end(), queue, at);
      continue;
    }
    ++misses;
    if (queue.size() == slots) queue.pop_front();
    queue.push_back(object);
  }
  return misses;
}

/// Counts start at 1 on insertion; evicts the least count, ties by the earliest use.
std::uint64_t naive_lfu(const accesses& trace, std::size_t slots) {
  std::map<std::uint64_t, std::pair<std::uint64_t, std::uint64_t>> cached;  // object: count, time
  std::uint64_t misses = 0;
  for (std::uint64_t now = 0; now < trace.size(); ++now) {
    const auto at = cached.find(trace[now]);
    if (at != cached.end()) {
      at->second = {at->second.first + 1, now};
      continue;
    }
    ++misses;
    if (cached.size() == slots)
      cached.erase(std::min_element(cached.begin(), cached.end(), [](const auto& a, const auto& b) {
        return a.second < b.second;
      }));
    cached[trace[now]] = {1, now};
  }
  return misses;
}

std::uint64_t naive_belady(const accesses& trace, std::size_t slots) {
  std::vector<std::uint64_t> cached;
  std::uint64_t misses = 0;
  for (std::size_t now = 0; now < trace.size(); ++now) {
    if (std::find(cached.begin(), cached.end(), trace[now]) != cached.end()) continue;
    ++misses;
    const auto next_use = [&](std::uint64_t object) {
      return std::find(trace.begin() + static_cast<std::ptrdiff_t>(now), trace.end(), object) -
             trace.begin();
    };
    if (cached.size() == slots)
      cached.erase(std::max_element(cached.begin(), cached.end(),
                                    [&](auto a, auto b) { return next_use(a) < next_use(b); }));
    cached.push_back(trace[now]);
  }
  return misses;
}

void expect_as_general_simulators(const routing_trace& trace, const accesses& objects) {
  for (const std::size_t slots : {1U, 2U, 3U, 5U, 8U, 13U, 40U}) {
    SCOPED_TRACE(std::to_string(slots) + " slots");
    for (const std::string scope : {"shared", "per-layer"}) {
      const auto misses = [&](const std::string& name) {
        return one_run(trace, {name, scope, std::to_string(slots), "per-access"}).stats.misses;
      };
      EXPECT_EQ(misses("lru"), naive_lru(objects, slots, true));
      EXPECT_EQ(misses("fifo"), naive_lru(objects, slots, false));
      EXPECT_EQ(misses("lfu:history=resident"), naive_lfu(objects, slots));
      EXPECT_EQ(misses("belady"), naive_belady(objects, slots));
      if (trace.layers > 1) break;  // a quota per layer is another cache
    }
  }
}

TEST(policies, a_routing_trace_written_as_oracle_general_gives_the_same_misses) {
  const trace_samples::temporary_folder folder;
  const auto file = folder.path() / "trace.oracleGeneral.bin";
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto trace = any_trace(seed, 4);
    const visit_sequence visits(trace, {.per_access = true});
    accesses objects;
    for (std::size_t i = 0; i < visits.size(); ++i)
      objects.push_back(visits.shape().index({visits.at(i).layer, visits[i].experts.front()}));
    lab::write_oracle_general(trace, lab::output_file(file));
    expect_as_general_simulators(lab::read_oracle_general(file), objects);
    expect_as_general_simulators(trace, objects);
  }
}

}  // namespace
}  // namespace policies_test
