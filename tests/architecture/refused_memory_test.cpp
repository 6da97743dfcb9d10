// SPDX-License-Identifier: Apache-2.0
// Memory is refused at each allocation of a call in turn. A noexcept call returns a status and leaves nothing
// half-done. no_allocation_test.cpp replaces operator new.

#include <array>
#include <cstddef>
#include <functional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "busy_cache.hpp"
#include "counted_memory.hpp"
#include "host_experts.hpp"
#include "hotset/cache/expert_slots.hpp"
#include "hotset/cache/slot_cache.hpp"
#include "hotset/core/memory_budget.hpp"
#include "hotset/eviction/gate_score.hpp"
#include "hotset/eviction/least_stale.hpp"
#include "hotset/eviction/lfu.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/transfer/host_backend.hpp"
#include "hotset/transfer/memory/host_virtual_memory.hpp"
#include "hotset/transfer/memory/virtual_memory.hpp"
#include "pager_walk.hpp"
#include "random_source.hpp"

namespace hotset {
namespace {

using support::refused_memory;

const geometry shape{.layers = 3,
                     .experts = 12,
                     .top_k = 2,
                     .max_tokens_per_visit = 4,
                     .expert_bytes = {14'000, 3'000, 14'000}};
// Tensors of whole pages: an elastic bank requests memory at almost every slot.
const std::vector<expert_layout> layouts{{{{"up", 5'000}, {"down", 9'000}}}, {{{"all", 3'000}}}};

/// Calls `make` with the first, the second, ... allocation refused, until none is refused. Returns how many were.
std::size_t refuse_each(const std::function<bool()>& make) {
  for (std::size_t nth = 1;; ++nth)
    for (const bool and_all_later : {false, true}) {
      const refused_memory refused(nth, and_all_later);
      const bool made = make();
      if (refused_memory::happened()) {
        EXPECT_FALSE(made) << "allocation " << nth;
        continue;
      }
      EXPECT_TRUE(made);
      return nth - 1;
    }
}

TEST(refused_memory, a_bank_is_not_made_and_gives_a_reason) {
  const auto layout = pool_layout::per_layer(shape, 6).value();
  memory_budget budget(1 << 20);
  const auto told = [](const result<host_slot_bank>& made) {
    EXPECT_TRUE(made || made.error().message.ends_with("no host memory") ||
                made.error().message.ends_with("out of memory"));
    return made.has_value();
  };
  EXPECT_GT(refuse_each([&] { return told(host_slot_bank::create(layout, layouts)); }), 5U);
  EXPECT_GT(
      refuse_each([&] { return told(host_slot_bank::create_elastic(layout, layouts, budget)); }),
      5U);
  EXPECT_EQ(budget.in_use(), 0U);
}

TEST(refused_memory, a_bank_keeps_its_content) {
  memory_budget budget(1 << 20);
  auto bank =
      host_slot_bank::create_elastic(pool_layout::per_layer(shape, 6).value(), layouts, budget)
          .value();
  ASSERT_EQ(bank.hold(0, 2), status::ok);
  const auto before = budget.in_use();
  const auto refused = refuse_each([&] {
    const auto grown = bank.hold(0, 5);
    if (grown == status::ok) return true;
    EXPECT_EQ(grown, status::exceeds_memory);
    EXPECT_EQ(bank.held(0), 2U);
    EXPECT_EQ(budget.in_use(), before);
    return false;
  });
  EXPECT_GT(refused, 6U) << "the blocks of two tensors, and the books of them";
}

TEST(refused_memory, virtual_memory_is_mapped_whole_or_not_at_all) {
  auto made = host_virtual_memory::create();
  if (!made) GTEST_SKIP() << made.error().message;
  auto& memory = *made;
  const auto page = memory.granularity();
  std::span<std::byte> addresses;
  EXPECT_GT(refuse_each([&] {
              const auto code = memory.reserve(8 * page, addresses);
              EXPECT_TRUE(code == memory_status::ok || code == memory_status::out_of_memory);
              EXPECT_EQ(memory.reserved_bytes(), code == memory_status::ok ? 8 * page : 0U);
              return code == memory_status::ok;
            }),
            0U);
  ASSERT_EQ(memory.release(addresses), memory_status::ok);
  auto range = virtual_range<host_virtual_memory>::reserve(memory, 8 * page).value();
  std::size_t mapped = 0;
  for (const std::size_t offset : {0U, 4U}) {
    EXPECT_GT(refuse_each([&] {
                const auto code = range.populate(offset * page, 2 * page, 2);
                EXPECT_TRUE(code == memory_status::ok || code == memory_status::out_of_memory);
                if (code == memory_status::ok) mapped += 4 * page;
                EXPECT_EQ(range.mapped_bytes(), mapped);
                EXPECT_EQ(memory.physical_bytes(), mapped);
                return code == memory_status::ok;
              }),
              2U);
  }
  EXPECT_EQ(range.unmap(0, 8 * page), memory_status::ok);
  EXPECT_EQ(memory.physical_bytes(), 0U);
}

template <class Eviction>
class refused_resize : public testing::Test {
 protected:
  using cache_type = slot_cache<pager<Eviction>, host_backend<memory_expert_source>>;

  memory_budget budget{1 << 20};
  pool_layout layout = pool_layout::per_layer(shape, shape.experts).value();
  std::vector<std::vector<std::byte>> bytes;
  memory_expert_source source = support::patterned_source(shape, layouts, bytes);
  host_slot_bank bank = host_slot_bank::create_elastic(layout, layouts, budget).value();
  host_backend<memory_expert_source> backend{source, bank};
  cache_type cache{pager<Eviction>({.layout = layout}), backend};
  host_stream stream;
  expert_slots<cache_type, host_slot_bank> pool{cache, bank, stream};
  cache_visit visit = cache.make_visit();
  support::random_source random{5};
  bool opened = false;

  void walk() {
    ASSERT_EQ(
        support::walk(
            cache, visit, stream, random, {.visits = 40, .routed = 12}, [](layer_id) {}, [] {}),
        status::ok);
    ASSERT_EQ(cache.drain(), status::ok);
  }
  [[nodiscard]] std::vector<std::int32_t> quotas() const {
    std::vector<std::int32_t> out;
    for (const auto l : each<layer_id>(shape.layers)) out.push_back(cache.pager().quota(l));
    return out;
  }
  /// Every row names slots that have memory and hold the bytes of their expert.
  void expect_right() {
    const auto q = quotas();
    ASSERT_EQ(bank.held(0), opened ? static_cast<std::size_t>(q[0] + q[2]) : 0U);
    ASSERT_EQ(bank.held(1), opened ? static_cast<std::size_t>(q[1]) : 0U);
    for (std::size_t k = 0; k < shape.keys(); ++k) {
      const auto key = shape.key(k);
      const auto slot = cache.row(key.layer)[index_of(key.expert)];
      if (slot == no_slot) continue;
      ASSERT_NE(bank.bytes(slot, 0).data(), nullptr);
      ASSERT_TRUE(support::slot_holds(bank, slot, key));
    }
    support::expect_consistent(cache.pager());
  }
  /// Returns at how many places memory was refused.
  std::size_t refuse_resize(const std::function<status()>& resize) {
    const auto before = quotas();
    return refuse_each([&] {
      const auto done = resize();
      if (done == status::ok) return true;
      const auto left = support::refused_allocation.exchange(0);  // code below may allocate
      EXPECT_EQ(done, status::exceeds_memory);
      EXPECT_EQ(quotas(), before);
      expect_right();
      support::refused_allocation = left;
      return false;
    });
  }
};
using policies = testing::Types<lru, lfu, least_stale, gate_score>;
TYPED_TEST_SUITE(refused_resize, policies);

TYPED_TEST(refused_resize, changes_nothing) {
  EXPECT_GT(this->refuse_resize([&] { return this->pool.open(4); }), 10U);
  this->opened = true;
  this->walk();
  EXPECT_GT(this->refuse_resize([&] { return this->pool.grow(7); }), 10U);
  this->walk();
  EXPECT_GT(this->refuse_resize([&] {
    return this->pool.set_quotas(std::array<std::int32_t, 3>{12, 3, 5});
  }),
            1U);
  this->walk();
  EXPECT_EQ(this->refuse_resize([&] { return this->pool.shrink(2); }), 0U) << "takes no memory";
  this->walk();
  EXPECT_GT(this->refuse_resize([&] { return this->pool.undo(); }), 1U);
  EXPECT_THAT(this->quotas(), testing::ElementsAre(12, 3, 5));
  this->walk();
  this->expect_right();
}

}  // namespace
}  // namespace hotset
