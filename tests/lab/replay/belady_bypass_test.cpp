// SPDX-License-Identifier: Apache-2.0
#include "lab/replay/belady_bypass.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/replay/replay.hpp"
#include "offline_optimum.hpp"
#include "sim_samples.hpp"

namespace belady_bypass_test {
namespace {

using namespace hotset;
using support::one_run;
using support::random_trace;
using testing::ElementsAre;
using testing::HasSubstr;

lab::belady_bypass made(const visit_sequence& visits, const pool_layout& layout) {
  return {layout, {.future = lab::order_events(visits, layout, false).future}};
}

/// The rule without optimisation: searches the trace and all residents.
class naive_bypass {
 public:
  naive_bypass(const visit_sequence& visits, const pool_layout& layout)
      : visits_(visits), layout_(layout), pools_(layout.pools()) {}

  void visit(std::size_t i) {
    const auto view = visits_[i];
    const auto p = layout_.pool_of_layer(view.layer);
    auto& pool = pools_[index_of(p)];
    for (const auto id : view.experts) {
      if (id < 0) continue;
      const auto key = visits_.shape().index({view.layer, id});
      std::erase_if(pool, [key](const resident& r) { return r.key == key; });
      pool.push_back({key, next_visit(i, view.layer, id)});
    }
    while (pool.size() > static_cast<std::size_t>(layout_.at(p).slots)) {
      const auto gone = std::ranges::max_element(pool, {}, &resident::next);  // the first of equals
      hash_ = (hash_ ^ gone->key) * 0x9E3779B97F4A7C15ULL;
      hash_ ^= hash_ >> 29U;
      pool.erase(gone);
    }
  }
  [[nodiscard]] std::uint64_t decision_hash() const { return hash_; }

 private:
  struct resident {
    std::size_t key = 0;
    std::size_t next = 0;
  };
  [[nodiscard]] std::size_t next_visit(std::size_t i, layer_id layer, expert_id id) const {
    while (++i < visits_.size())
      if (visits_[i].layer == layer && std::ranges::count(visits_[i].experts, id) != 0) return i;
    return std::numeric_limits<std::size_t>::max();
  }

  const visit_sequence& visits_;
  const pool_layout& layout_;
  std::vector<std::vector<resident>> pools_;  // least recently used first
  std::uint64_t hash_ = 0;
};

// One slot. 0 enters and is used next; 1 is used later: it is served without a slot, and 0 hits.
TEST(belady_bypass, streams_keys_that_are_used_later) {
  const visit_sequence visits(support::one_layer(4, {{0}, {1}, {0}, {2}, {0}}));
  auto pager = made(visits, pool_layout::shared(visits.shape(), 1).value());
  std::vector<std::uint64_t> hits;
  for (std::size_t i = 0; i < visits.size(); ++i) {
    ASSERT_EQ(pager.visit(visits[i]), status::ok);
    hits.push_back(pager.stats().hits);
  }
  EXPECT_THAT(hits, ElementsAre(0U, 0U, 1U, 1U, 2U));
  EXPECT_EQ(pager.stats().misses, 3U);
  EXPECT_EQ(pager.stats().compulsory_misses, 3U);
  EXPECT_EQ(pager.stats().evictions, 2U);
}

TEST(belady_bypass, misses_as_little_as_possible) {
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const std::int32_t layers = seed % 2 == 0 ? 1 : 2;
    const visit_sequence visits(random_trace(seed, {.layers = layers,
                                                    .experts = 8 / layers,
                                                    .steps = 8,
                                                    .most_tokens = 1 + seed % 3,
                                                    .absent_one_in = seed % 5 == 0 ? 5U : 0U,
                                                    .skewed = seed % 3 == 0}));
    for (std::int64_t slots = 2; slots <= 5; ++slots)
      for (const bool shared : {true, false}) {
        const auto layout = (shared ? pool_layout::shared(visits.shape(), slots)
                                    : pool_layout::per_layer(visits.shape(), slots))
                                .value();
        auto pager = made(visits, layout);
        lab::replay(visits, pager);
        ASSERT_EQ(pager.stats().misses, support::fewest_fills(visits, layout, false))
            << slots << " slots";
      }
  }
}

// Ties, pools smaller than a visit, and pools of some layers.
TEST(belady_bypass, evicts_in_the_order_of_its_rule) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    auto trace = random_trace(seed, {.layers = 3,
                                     .experts = 9,
                                     .top_k = 3,
                                     .steps = 25,
                                     .most_tokens = 1 + seed % 4,
                                     .absent_one_in = seed % 3 == 0 ? 6U : 0U,
                                     .skewed = seed % 2 == 0});
    trace.expert_bytes = {7, 5, 7};
    const visit_sequence visits(trace);
    const auto& shape = visits.shape();
    const auto slots = static_cast<std::int64_t>(3 + seed % 9);
    const std::vector<std::int64_t> two{slots + 2, 3};  // of the outer layers, of the inner one
    for (const auto& layout :
         {pool_layout::shared(shape, slots).value(), pool_layout::per_layer(shape, slots).value(),
          pool_layout::shared_by_size_class(shape, two).value()}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", pools " + std::to_string(layout.pools()));
      auto pager = made(visits, layout);
      naive_bypass expected(visits, layout);
      for (std::size_t i = 0; i < visits.size(); ++i) {
        ASSERT_EQ(pager.visit(visits[i]), status::ok);
        expected.visit(i);
        ASSERT_EQ(pager.decision_hash(), expected.decision_hash()) << "visit " << i;
      }
    }
  }
}

TEST(belady_bypass, counts_as_a_pager_does) {
  const auto trace = random_trace(
      5, {.layers = 3, .experts = 10, .steps = 60, .most_tokens = 3, .absent_one_in = 9});
  const auto ours = one_run(trace, {"belady_bypass", "shared", "100%"}).stats;
  const auto theirs = one_run(trace, {"lru", "shared", "100%"}).stats;
  EXPECT_EQ(ours, theirs) << "with a slot for every key there is nothing to decide";
  EXPECT_GT(ours.ignored_ids, 0U);
}

// Two slots; the first visit needs 4 experts of 100 bytes, 2 more than the pool holds.
TEST(belady_bypass, reports_the_bytes_beside_the_pool) {
  auto trace = support::empty_trace(1, 6, 2);
  trace.expert_bytes = {100};
  support::add_step(trace, {{0, 1}, {2, 3}}, request_class::prefill);
  support::add_step(trace, {{0, 1}});
  const auto notes = one_run(trace, {"belady_bypass", "shared", "2"}).notes;
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_THAT(notes.front(), HasSubstr("transient slots beside the pool: 200 B at most"));
}

TEST(belady_bypass, is_refused_without_the_future_of_the_trace) {
  const visit_sequence visits(support::one_layer(4, {{0}, {1}}));
  const visit_sequence other(support::one_layer(5, {{0}, {1}}));
  const auto layout = pool_layout::shared(visits.shape(), 1).value();
  const auto of_another = lab::order_events(other, layout, false).future;
  EXPECT_THROW(lab::belady_bypass(layout, {}), lab::usage_error);
  EXPECT_THROW(lab::belady_bypass(layout, {.future = of_another}), lab::usage_error);
}

TEST(belady_bypass, offers_no_byte_budget) {
  const auto trace = support::one_layer(4, {{0}, {1}});
  EXPECT_THAT(support::refusal<lab::usage_error>([&] {
                (void)one_run(trace, {"belady_bypass", "shared", "10B", "deferred"});
              }),
              HasSubstr("accepted: event-atomic, per-access"));
}

TEST(belady_bypass, refuses_a_layer_that_is_not_there) {
  const visit_sequence visits(support::one_layer(4, {{0}, {1}}));
  auto pager = made(visits, pool_layout::shared(visits.shape(), 1).value());
  auto view = visits[0];
  view.layer = 1_layer;
  EXPECT_EQ(pager.visit(view), status::invalid_visit);
}

}  // namespace
}  // namespace belady_bypass_test
