// SPDX-License-Identifier: Apache-2.0
#include "hotset/cache/expert_slots.hpp"

#include <chrono>
#include <cstddef>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "busy_cache.hpp"
#include "elastic_experts.hpp"
#include "host_experts.hpp"
#include "hotset/cache/slot_cache.hpp"
#include "hotset/core/memory_budget.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/paging/pager.hpp"
#include "hotset/testing/gate.hpp"
#include "hotset/transfer/host_backend.hpp"
#include "hotset/transfer/memory/resizable_pool.hpp"
#include "pager_walk.hpp"

namespace hotset::support {
// Includes elastic_experts without the suite that it is an entry of.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(resizable_conformance);
}  // namespace hotset::support

namespace hotset::expert_slots_test {
namespace {

const geometry shape{
    .layers = 3, .experts = 12, .top_k = 2, .max_tokens_per_visit = 4, .expert_bytes = {300}};
const std::vector<expert_layout> layouts{{{{"up", 100}, {"down", 200}}}};

class expert_slots_test : public testing::Test {
 protected:
  using cache_type = slot_cache<pager<lru>, host_backend<memory_expert_source>>;
  using pool_type = expert_slots<cache_type, host_slot_bank>;
  static_assert(resizable_pool<pool_type>);

  explicit expert_slots_test(std::uint64_t bytes = 1 << 20, std::int64_t slots = shape.experts,
                             host_stream::mode how = host_stream::mode::caller)
      : budget(bytes),
        layout(pool_layout::per_layer(shape, slots).value()),
        experts(layout, {100, 200}),
        bank(host_slot_bank::create_elastic(layout, layouts, budget).value()),
        backend(experts.source, bank),
        cache(pager<lru>({.layout = layout}), backend),
        pool(cache, bank, stream),
        visit(cache.make_visit()),
        stream(how) {}

  [[nodiscard]] bool holds(slot_id slot, expert_key key) const {
    for (std::size_t t = 0; t < bank.tensors(slot); ++t)
      if (!support::holds(bank.bytes(slot, t), key, t)) return false;
    return true;
  }
  /// Every row names slots that have memory and hold the bytes of their expert.
  void expect_right() {
    std::size_t quotas = 0;
    for (const auto l : each<layer_id>(shape.layers))
      quotas += static_cast<std::size_t>(cache.pager().quota(l));
    ASSERT_EQ(bank.held(0), quotas);
    ASSERT_EQ(budget.in_use(), quotas * bank.slot_bytes(0));
    for (std::size_t k = 0; k < shape.keys(); ++k) {
      const auto key = shape.key(k);
      const auto slot = cache.row(key.layer)[index_of(key.expert)];
      if (slot == no_slot) continue;
      ASSERT_LT(static_cast<std::size_t>(slot), quotas);
      ASSERT_TRUE(holds(slot, key)) << "layer " << key.layer << " expert " << key.expert;
    }
    support::expect_consistent(cache.pager());
  }
  void walk(std::int64_t visits) {
    ASSERT_EQ(support::walk(
                  cache, visit, stream, random, {.visits = visits, .routed = 12}, [&](layer_id) {},
                  [] {}),
              status::ok);
    ASSERT_EQ(support::told_once([&] { return cache.drain(); }), status::ok);
  }

  memory_budget budget;
  pool_layout layout;
  support::host_experts experts;
  host_slot_bank bank;
  host_backend<memory_expert_source> backend;
  cache_type cache;
  pool_type pool;
  cache_visit visit;
  host_stream stream;
  support::random_source random{3};
};

TEST_F(expert_slots_test, opens_with_the_memory_of_its_quotas) {
  ASSERT_EQ(pool.open(4), status::ok);
  EXPECT_EQ(pool.capacity(), 4U);
  EXPECT_EQ(pool.in_use(), 2U);
  EXPECT_EQ(pool.unit_bytes(), 3 * (128 + 256U));
  EXPECT_EQ(budget.in_use(), 4 * pool.unit_bytes());
  EXPECT_TRUE(pool.drained());
  walk(60);
  expect_right();
}

TEST_F(expert_slots_test, does_not_open_with_an_impossible_quota) {
  for (const std::uint64_t units : {1ULL, 13ULL, (1ULL << 32U) + 4, ~0ULL})
    EXPECT_EQ(pool.open(units), status::invalid_argument) << units;
  EXPECT_EQ(budget.in_use(), 0U);
  EXPECT_EQ(pool.open(12), status::ok);
}

TEST_F(expert_slots_test, shrinks_and_grows_while_serving) {
  ASSERT_EQ(pool.open(6), status::ok);
  for (int round = 0; round < 60; ++round) {
    walk(20);
    const auto units = 2 + random.below(11);
    ASSERT_EQ(units < pool.capacity() ? pool.shrink(units) : pool.grow(units), status::ok);
    EXPECT_EQ(pool.capacity(), units);
    expect_right();
  }
}

TEST_F(expert_slots_test, layers_may_have_unequal_quotas) {
  ASSERT_EQ(pool.open(6), status::ok);
  for (int round = 0; round < 60; ++round) {
    walk(20);
    std::vector<std::int32_t> quotas(3);
    for (auto& q : quotas) q = 2 + random.id_below(11);
    ASSERT_EQ(pool.set_quotas(quotas), status::ok);
    for (const auto l : each<layer_id>(3)) EXPECT_EQ(cache.pager().quota(l), quotas[index_of(l)]);
    expect_right();
  }
}

TEST_F(expert_slots_test, an_open_visit_is_busy) {
  ASSERT_EQ(pool.open(6), status::ok);
  const std::vector<std::int32_t> ids{1, 2};
  const routing_view view{.experts = ids};
  ASSERT_EQ(cache.resolve(view, stream, visit), status::ok);
  EXPECT_FALSE(pool.drained());
  EXPECT_EQ(pool.shrink(3), status::busy);
  EXPECT_EQ(pool.grow(8), status::busy);
  EXPECT_EQ(pool.capacity(), 6U);
  cache.release(visit, stream);
  EXPECT_EQ(pool.shrink(3), status::ok);
  expect_right();
}

TEST_F(expert_slots_test, refuses_invalid_values) {
  ASSERT_EQ(pool.open(6), status::ok);
  EXPECT_EQ(pool.shrink(1), status::invalid_argument);  // a token needs two
  EXPECT_EQ(pool.shrink(7), status::invalid_argument);
  EXPECT_EQ(pool.grow(5), status::invalid_argument);
  EXPECT_EQ(pool.grow(13), status::invalid_argument);
  EXPECT_EQ(pool.set_quotas(std::vector<std::int32_t>{4, 4}), status::invalid_argument);
  EXPECT_EQ(pool.grow(6), status::ok);
  expect_right();
}

/// A cache that refuses one call on request.
template <class Cache>
class refusing_cache {
 public:
  using stream_type = typename Cache::stream_type;
  explicit refusing_cache(Cache& behind) : behind_(behind) {}
  int refused_quota = -1;    ///< calls from now; negative: never
  int refused_compact = -1;  ///< like refused_quota

  [[nodiscard]] const auto& pager() const noexcept { return behind_.pager(); }
  status drain() noexcept { return behind_.drain(); }
  status set_quota(layer_id layer, std::int32_t slots) noexcept {
    return refused_quota-- == 0 ? status::busy : behind_.set_quota(layer, slots);
  }
  template <class What>
  status invalidate(What what) noexcept {
    return behind_.invalidate(what);
  }
  template <class Moved>
  status compact(Moved moved) {
    return refused_compact-- == 0 ? status::fill_failed : behind_.compact(moved);
  }

 private:
  Cache& behind_;
};

// Whichever step is refused, the earlier quotas, their memory and every resident's bytes remain.
TEST_F(expert_slots_test, refused_quotas_are_restored) {
  ASSERT_EQ(pool.open(6), status::ok);
  const std::vector<std::int32_t> before{4, 6, 8};
  const std::vector<std::int32_t> after{8, 5, 3};
  ASSERT_EQ(pool.set_quotas(before), status::ok);
  refusing_cache stubborn(cache);
  expert_slots again(stubborn, bank, stream);
  const auto quota = [&](std::size_t l) { return cache.pager().quota(static_cast<layer_id>(l)); };
  for (int n = 0; n < 3; ++n) {
    SCOPED_TRACE(n);
    walk(40);
    stubborn.refused_quota = n;
    EXPECT_EQ(again.set_quotas(after), status::busy);
    for (std::size_t l = 0; l < 3; ++l) EXPECT_EQ(quota(l), before[l]);
    expect_right();
  }
  stubborn.refused_quota = -1;
  for (const int n : {0, 1}) {
    walk(40);
    stubborn.refused_compact = n;
    EXPECT_EQ(again.set_quotas(after), n == 0 ? status::fill_failed : status::ok);
    for (std::size_t l = 0; l < 3; ++l) EXPECT_EQ(quota(l), n == 0 ? before[l] : after[l]);
    expect_right();
  }
  walk(40);
  expect_right();
}

TEST_F(expert_slots_test, a_refused_opening_keeps_the_layouts_quotas) {
  refusing_cache stubborn(cache);
  expert_slots again(stubborn, bank, stream);
  for (int n = 0; n < 3; ++n) {
    stubborn.refused_quota = n;
    EXPECT_EQ(again.open(4), status::busy);
    for (const auto l : each<layer_id>(3)) EXPECT_EQ(cache.pager().quota(l), 12);
    EXPECT_EQ(budget.in_use(), 0U);
  }
  EXPECT_EQ(again.open(4), status::ok);
  walk(40);
  expect_right();
}

TEST_F(expert_slots_test, undo_gives_the_quotas_of_before_the_last_change) {
  ASSERT_EQ(pool.open(6), status::ok);
  const std::vector<std::int32_t> unequal{8, 3, 5};
  ASSERT_EQ(pool.set_quotas(unequal), status::ok);
  walk(40);
  ASSERT_EQ(pool.shrink(2), status::ok);
  ASSERT_EQ(pool.undo(), status::ok);
  for (std::size_t l = 0; l < 3; ++l)
    EXPECT_EQ(cache.pager().quota(static_cast<layer_id>(l)), unequal[l]);
  walk(40);
  expect_right();
}

/// Has five units and can neither shrink nor grow.
struct stubborn_pool {
  [[nodiscard]] std::uint64_t unit_bytes() const noexcept { return 1; }
  [[nodiscard]] std::uint64_t capacity() const noexcept { return 5; }
  [[nodiscard]] std::uint64_t in_use() const noexcept { return 0; }
  [[nodiscard]] std::uint64_t peak() const noexcept { return 0; }
  [[nodiscard]] bool drained() const noexcept { return true; }
  void reset_peak() noexcept {}
  status shrink(std::uint64_t) noexcept { return status::busy; }
  status grow(std::uint64_t) noexcept { return status::exceeds_memory; }
};
static_assert(resizable_pool<stubborn_pool>);

// The smallest quota does not determine the others.
TEST_F(expert_slots_test, unequal_quotas_outlive_a_move_between_pools_that_is_refused) {
  ASSERT_EQ(pool.open(6), status::ok);
  const std::vector<std::int32_t> unequal{8, 4, 6};
  ASSERT_EQ(pool.set_quotas(unequal), status::ok);
  stubborn_pool other;
  for (const std::uint64_t units : {2U, 3U, 7U, 12U}) {
    SCOPED_TRACE(units);
    walk(40);
    EXPECT_EQ(resize_both(pool, units, other, 6), status::exceeds_memory);
    for (std::size_t l = 0; l < 3; ++l)
      EXPECT_EQ(cache.pager().quota(static_cast<layer_id>(l)), unequal[l]);
    expect_right();
  }
}

// If the second size class runs out of memory, the first class returns its new slots.
TEST(expert_slots_of_two_sizes, a_refused_growth_returns_memory_of_other_sizes) {
  using experts_type = support::elastic_experts;
  memory_budget budget(10 * experts_type::unit_bytes);
  experts_type experts(budget, 6);
  experts.fill();
  const auto places = experts.places();
  for (std::uint64_t of_second = 0; of_second < 3; ++of_second) {
    SCOPED_TRACE(of_second);
    const support::other_user other(budget,
                                    3 * (experts_type::unit_bytes - experts_type::small_bytes) +
                                        of_second * experts_type::small_bytes);
    const auto before = budget.in_use();
    EXPECT_EQ(experts.pool.grow(9), status::exceeds_memory);
    EXPECT_EQ(budget.in_use(), before);
    EXPECT_EQ(experts.pool.capacity(), 6U);
    EXPECT_EQ(experts.places(), places);
  }
  EXPECT_EQ(experts.pool.grow(9), status::ok);
}

// Slots for half of the experts: a layer gains a slot only if another layer lost one.
struct expert_slots_of_a_small_layout : expert_slots_test {
  expert_slots_of_a_small_layout() : expert_slots_test(1 << 20, 6, host_stream::mode::worker) {}
};
TEST_F(expert_slots_of_a_small_layout, layers_that_lose_go_first) {
  ASSERT_EQ(pool.open(6), status::ok);
  const std::vector<std::int32_t> unequal{12, 3, 3};
  const std::vector<std::int32_t> turned{3, 3, 12};
  EXPECT_EQ(pool.set_quotas(unequal), status::ok);
  EXPECT_EQ(pool.set_quotas(turned), status::ok);
  EXPECT_EQ(cache.pager().quota(2_layer), 12);
  EXPECT_EQ(bank.held(0), 18U);
  EXPECT_EQ(pool.set_quotas(std::vector<std::int32_t>{12, 3, 4}), status::exceeds_memory);
  EXPECT_EQ(pool.capacity(), 3U);
}

// A kernel that the stream has not run yet still reads the slots of its visit.
TEST_F(expert_slots_of_a_small_layout, resizing_waits_for_readers_of_slots) {
  ASSERT_EQ(pool.open(6), status::ok);

  struct reader {
    const host_slot_bank& bank;
    suites::gate open;
    std::vector<std::pair<slot_id, expert_key>> slots{};
    int wrong = 0;
    static void run(void* context) noexcept {
      auto& self = *static_cast<reader*>(context);
      suites::gate::pass(&self.open);
      for (const auto& [slot, key] : self.slots)
        for (std::size_t t = 0; t < 2; ++t)
          self.wrong += support::holds(self.bank.bytes(slot, t), key, t) ? 0 : 1;
    }
  } late{bank, {}};
  for (const auto l : each<layer_id>(shape.layers))
    for (const auto& ids : {std::vector<std::int32_t>{0, 1, 2, 3}, {4, 5, 6, 7}}) {
      const routing_view view{.layer = l, .experts = ids};
      ASSERT_EQ(cache.resolve(view, stream, visit), status::ok);
      cache.release(visit, stream);
    }
  ASSERT_EQ(cache.drain(), status::ok);
  for (std::size_t k = 0; k < shape.keys(); ++k) {
    const auto key = shape.key(k);
    const auto slot = cache.row(key.layer)[index_of(key.expert)];
    if (slot != no_slot) late.slots.emplace_back(slot, key);
  }
  ASSERT_EQ(late.slots.size(), 18U);
  stream.run(&reader::run, &late);
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    late.open.open();
  });
  EXPECT_EQ(pool.shrink(3), status::ok);
  opener.join();
  stream.drain();
  EXPECT_EQ(late.wrong, 0);
}

struct expert_slots_short_of_memory : expert_slots_test {
  expert_slots_short_of_memory() : expert_slots_test(20 * 384) {}
};
// Memory is refused at every slot of a growth in turn: only evictions remain.
TEST_F(expert_slots_short_of_memory, a_refused_growth_changes_nothing) {
  ASSERT_EQ(pool.open(5), status::ok);
  walk(60);
  const auto row = std::vector<slot_id>(cache.row(1_layer).begin(), cache.row(1_layer).end());
  for (std::uint64_t others = 0; others < 6; ++others) {
    ASSERT_TRUE(budget.take(others * 384));
    EXPECT_EQ(pool.grow(7), status::exceeds_memory);
    budget.give_back(others * 384);
    EXPECT_EQ(pool.capacity(), 5U);
    EXPECT_THAT(cache.row(1_layer), testing::ElementsAreArray(row));
    expect_right();
  }
  EXPECT_EQ(pool.grow(6), status::ok);
  walk(60);
  expect_right();
  EXPECT_LE(budget.peak(), budget.limit());
}

}  // namespace
}  // namespace hotset::expert_slots_test
