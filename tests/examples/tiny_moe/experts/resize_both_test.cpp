// SPDX-License-Identifier: Apache-2.0
// Expert slots and KV blocks of one budget change places: cache/resize.hpp over real pools.

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "elastic_blocks.hpp"
#include "elastic_experts.hpp"
#include "hotset/core/memory_budget.hpp"
#include "hotset/transfer/memory/resizable_pool.hpp"
#include "random_source.hpp"

namespace hotset::resize_both_test {
namespace {

using support::elastic_blocks;
using support::elastic_experts;

struct sizes {
  std::uint64_t slots = 0;
  std::uint64_t blocks = 0;
  friend bool operator==(const sizes&, const sizes&) = default;
};

/// Two pools whose nth resize from now on is refused, whichever it is.
class refusals {
 public:
  explicit refusals(int first, int second = 0) : first_(first), second_(second) {}
  bool next() noexcept { return ++calls_ == first_ || calls_ == second_; }
  [[nodiscard]] int calls() const { return calls_; }

 private:
  int first_;
  int second_;
  int calls_ = 0;
};
template <class Pool>
struct refusing {
  Pool& pool;
  refusals& when;
  [[nodiscard]] std::uint64_t unit_bytes() const noexcept { return pool.unit_bytes(); }
  [[nodiscard]] std::uint64_t capacity() const noexcept { return pool.capacity(); }
  [[nodiscard]] std::uint64_t in_use() const noexcept { return pool.in_use(); }
  [[nodiscard]] std::uint64_t peak() const noexcept { return pool.peak(); }
  [[nodiscard]] bool drained() const noexcept { return pool.drained(); }
  void reset_peak() noexcept { pool.reset_peak(); }
  status shrink(std::uint64_t units) noexcept {
    return when.next() ? status::busy : pool.shrink(units);
  }
  status grow(std::uint64_t units) noexcept {
    return when.next() ? status::exceeds_memory : pool.grow(units);
  }
};

/// Six slots of each layer beside twelve blocks; the budget holds that and no more.
struct shared_budget {
  static constexpr sizes begin{6, 12};
  static constexpr std::uint64_t bytes_of(const sizes& s) {
    return s.slots * elastic_experts::unit_bytes + s.blocks * elastic_blocks::unit_bytes;
  }

  memory_budget budget{bytes_of(begin)};
  elastic_experts experts{budget, begin.slots};
  elastic_blocks kv{budget, begin.blocks};

  shared_budget() {
    experts.fill();
    kv.fill();
  }
  [[nodiscard]] sizes now() const { return {experts.pool.capacity(), kv.pool.capacity()}; }
  status resize(const sizes& to, bool experts_first) {
    return experts_first ? resize_both(experts.pool, to.slots, kv.pool, to.blocks)
                         : resize_both(kv.pool, to.blocks, experts.pool, to.slots);
  }
  status resize(const sizes& to, bool experts_first, refusals& when) {
    refusing<elastic_experts::pool_type> slots{experts.pool, when};
    refusing<elastic_blocks::pool_type> blocks{kv.pool, when};
    return experts_first ? resize_both(slots, to.slots, blocks, to.blocks)
                         : resize_both(blocks, to.blocks, slots, to.slots);
  }
  /// The memory is that of both sizes, and everything lies where its pool says.
  void expect_right() {
    EXPECT_EQ(budget.in_use(), bytes_of(now()));
    EXPECT_LE(budget.peak(), budget.limit());
    (void)experts.places();
    EXPECT_EQ(kv.places().size(), 2U);
  }
  void expect_works() {
    support::random_source random(5);
    experts.serve(random);
    kv.serve(random);
    expect_right();
  }
};

// 832 bytes of a slot are three blocks and a bit; both directions, both shrink, both grow.
const std::vector<sizes> targets{{4, 18}, {8, 5}, {3, 4}, {6, 7}, {2, 12}, {9, 2}};

TEST(resize_both_of_real_pools, moves_memory_either_way) {
  for (const bool experts_first : {true, false}) {
    shared_budget both;
    support::random_source random(6);
    for (int n = 0; n < 200; ++n) {
      const auto& to = targets[random.below(targets.size())];
      ASSERT_EQ(both.resize(to, experts_first), status::ok);
      EXPECT_EQ(both.now(), to);
      both.expect_works();
    }
  }
}

TEST(resize_both_of_real_pools, a_refusal_at_any_step_leaves_the_split_before) {
  for (const bool experts_first : {true, false}) {
    for (const auto& to : targets) {
      for (int nth = 1;; ++nth) {
        SCOPED_TRACE(std::to_string(to.slots) + " slots, refusal " + std::to_string(nth));
        shared_budget both;
        refusals when(nth);
        const auto changed = both.resize(to, experts_first, when);
        if (changed == status::ok) {
          EXPECT_EQ(when.calls(), nth - 1);
          EXPECT_GT(nth, 1);
          EXPECT_EQ(both.now(), to);
          break;
        }
        EXPECT_EQ(both.now(), shared_budget::begin);
        both.expect_works();
      }
    }
  }
}

// The way back is refused too: the pool that changed first stays as it is, and both work.
TEST(resize_both_of_real_pools, a_refused_way_back_leaves_a_split_that_works) {
  for (const bool experts_first : {true, false}) {
    for (const sizes& to : {sizes{4, 18}, sizes{8, 5}}) {
      shared_budget both;
      refusals when(2, 3);
      EXPECT_EQ(both.resize(to, experts_first, when), status::exceeds_memory);
      EXPECT_EQ(when.calls(), 3);
      const auto expected = to.slots < shared_budget::begin.slots
                                ? sizes{to.slots, shared_budget::begin.blocks}
                                : sizes{shared_budget::begin.slots, to.blocks};
      EXPECT_EQ(both.now(), expected);
      both.expect_works();
    }
  }
}

// The budget itself refuses: one unit more than what the other pool gives back.
TEST(resize_both_of_real_pools, growth_beyond_the_budget_is_undone) {
  for (const bool experts_first : {true, false}) {
    for (const sizes& to : {sizes{4, 19}, sizes{8, 6}, sizes{6, 13}, sizes{7, 12}, sizes{7, 13}}) {
      shared_budget both;
      EXPECT_EQ(both.resize(to, experts_first), status::exceeds_memory);
      EXPECT_EQ(both.now(), shared_budget::begin);
      both.expect_works();
    }
  }
}

TEST(resize_both_of_real_pools, what_is_needed_is_not_given_away) {
  for (const bool experts_first : {true, false}) {
    for (const sizes& to : {sizes{8, 1}, sizes{1, 20}, sizes{5, 1}, sizes{1, 1}}) {
      shared_budget both;
      EXPECT_EQ(both.resize(to, experts_first), status::invalid_argument);
      EXPECT_EQ(both.now(), shared_budget::begin);
      both.expect_works();
    }
  }
}

TEST(resize_both_of_real_pools, whoever_is_not_drained_both_stay) {
  for (const bool experts_first : {true, false}) {
    shared_budget both;
    for (const auto& to : targets) {
      {
        const auto visit = both.experts.hold_up();
        EXPECT_EQ(both.resize(to, experts_first), status::busy);
      }
      {
        const auto pass = both.kv.hold_up();
        EXPECT_EQ(both.resize(to, experts_first), status::busy);
      }
      EXPECT_EQ(both.now(), shared_budget::begin);
    }
    both.expect_works();
  }
}

}  // namespace
}  // namespace hotset::resize_both_test
