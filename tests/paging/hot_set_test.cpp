// SPDX-License-Identifier: Apache-2.0
#include "hotset/paging/hot_set.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pager_walk.hpp"
#include "single_uses.hpp"

namespace hotset::hot_set_test {
namespace {

using support::told_lru;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;

const geometry shape{.layers = 2, .experts = 8, .top_k = 2, .expert_bytes = {10}};

/// Writes down which keys it hears of.
struct hearing {
  struct config {
    std::vector<expert_id>* to = nullptr;
    [[nodiscard]] validation validate() const { return std::nullopt; }
  };
  static constexpr std::string_view name = "hearing";
  static constexpr admission_traits traits{};
  hearing(const pool_layout&, const config& options) : to(options.to) {}
  void admit(const visit_context&, std::span<const expert_use>,
             std::span<std::uint8_t>) const noexcept {}
  void on_use(const expert_use&, bool, bool) noexcept {}
  void on_evict(expert_key key, step_id) noexcept { to->push_back(key.expert); }
  std::vector<expert_id>* to;
};

struct hot_set_test : testing::Test {
  slot_id fill_slot(expert_key key, bool speculative = false) {
    auto f = hot.held.reserve_free(key, 0_pool);
    f.speculative = speculative;
    if (speculative)
      hot.held.await(f);
    else
      (void)hot.held.hold(f);
    hot.speculated = hot.speculated || speculative;
    expert_use a;
    a.key = key;
    a.slot = f.slot;
    support::bring(hot.eviction, a);
    return f.slot;
  }
  told_lru::journal journal;
  std::vector<expert_id> heard;
  hot_set<told_lru, hearing> hot{pool_layout::shared(shape, 4).value(), {&journal}, {&heard}};
};

TEST_F(hot_set_test, chooses_in_the_policys_order_and_never_more_than_was_asked) {
  const auto first = fill_slot({0_layer, 1_expert});
  const auto second = fill_slot({0_layer, 2_expert});
  EXPECT_THAT(hot.choose({}, 1), ElementsAre(first));
  EXPECT_THAT(hot.choose({}, 4), ElementsAre(first, second));
}

TEST_F(hot_set_test, everyone_hears_of_an_eviction) {
  const auto slot = fill_slot({0_layer, 1_expert});
  hot.release(slot);
  EXPECT_THAT(journal.lines, Contains("evict 1"));
  EXPECT_THAT(heard, ElementsAre(1));
  EXPECT_EQ(hot.ledger.totals.evictions, 1U);
  EXPECT_EQ(hot.held.free_count(0_pool), 4U);
}

TEST_F(hot_set_test, a_copy_that_is_outdone_is_no_eviction) {
  const auto slot = fill_slot({0_layer, 1_expert});
  hot.release(slot, loss::outdone);
  EXPECT_THAT(journal.lines, Contains("evict 1"));
  EXPECT_THAT(heard, IsEmpty());
  EXPECT_EQ(hot.ledger.totals.evictions, 0U);
}

TEST_F(hot_set_test, a_prefetch_is_wasted_taken_back_or_lost_and_counted_as_that) {
  const auto wasted = fill_slot({0_layer, 1_expert}, true);
  hot.arrived(wasted, hot.held[wasted].generation);
  hot.release(wasted);
  EXPECT_EQ(hot.ledger.totals.wasted_prefetches, 1U);
  EXPECT_EQ(hot.ledger.totals.bytes_prefetch_wasted, 10U);

  const auto taken_back = fill_slot({0_layer, 2_expert}, true);
  hot.cancelled(taken_back, hot.held[taken_back].generation + 1);
  EXPECT_EQ(hot.held.filling(), 1U) << "of another reservation";
  hot.cancelled(taken_back, hot.held[taken_back].generation);
  EXPECT_EQ(hot.ledger.totals.cancelled_prefetches, 1U);
  EXPECT_EQ(hot.ledger.totals.wasted_prefetches, 1U);

  const auto lost = fill_slot({0_layer, 3_expert}, true);
  hot.failed(lost, hot.held[lost].generation);
  EXPECT_EQ(hot.ledger.totals.failed_fills, 1U);
  EXPECT_EQ(hot.held.filling(), 0U);
  EXPECT_EQ(hot.held.free_count(0_pool), 4U);
  EXPECT_FALSE(hot.speculating());
}

TEST_F(hot_set_test, a_victim_whose_own_copy_fails_meanwhile_comes_back_to_nobody) {
  const auto slot = fill_slot({0_layer, 1_expert});
  const auto generation = hot.held[slot].generation;
  const auto f = hot.held.reserve_victim({1_layer, 4_expert}, slot);
  hot.failed(slot, generation);
  hot.return_slot(f);
  EXPECT_EQ(hot.held.locate({0_layer, 1_expert}), no_slot);
  EXPECT_EQ(hot.held.free_count(0_pool), 4U);
  EXPECT_EQ(hot.held.pool(0_pool).resident_bytes, 0U);
}

TEST_F(hot_set_test, a_spoilt_slot_is_free_and_both_keys_are_absent) {
  const auto slot = fill_slot({0_layer, 1_expert});
  const auto f = hot.held.reserve_victim({1_layer, 4_expert}, slot);
  hot.spoil_slot(f);
  EXPECT_EQ(hot.held.locate({0_layer, 1_expert}), no_slot);
  EXPECT_EQ(hot.held.locate({1_layer, 4_expert}), no_slot);
  EXPECT_EQ(hot.held.free_count(0_pool), 4U);
  EXPECT_EQ(hot.ledger.totals.failed_fills, 1U);
}

}  // namespace
}  // namespace hotset::hot_set_test
