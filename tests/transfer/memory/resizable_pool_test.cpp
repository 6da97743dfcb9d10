// SPDX-License-Identifier: Apache-2.0
#include "hotset/transfer/memory/resizable_pool.hpp"

#include <cstdint>

#include <gtest/gtest.h>

#include "hotset/core/memory_budget.hpp"
#include "random_source.hpp"

namespace hotset::resizable_pool_test {
namespace {

/// A minimal type that satisfies the concept; each test below removes one member.
struct archetype {
  [[nodiscard]] std::uint64_t unit_bytes() const noexcept { return 1; }
  [[nodiscard]] std::uint64_t capacity() const noexcept { return 0; }
  [[nodiscard]] std::uint64_t in_use() const noexcept { return 0; }
  [[nodiscard]] std::uint64_t peak() const noexcept { return 0; }
  [[nodiscard]] bool drained() const noexcept { return true; }
  void reset_peak() noexcept {}
  status shrink(std::uint64_t) noexcept { return status::ok; }
  status grow(std::uint64_t) noexcept { return status::ok; }
};
struct throwing_growth : archetype {
  status grow(std::uint64_t) { return status::ok; }
};
struct silent_shrink : archetype {
  void shrink(std::uint64_t) noexcept {}
};
struct changes_when_asked : archetype {
  [[nodiscard]] std::uint64_t peak() noexcept { return 0; }
};

TEST(resizable_pool, takes_the_archetype_and_nothing_less) {
  EXPECT_TRUE(resizable_pool<archetype>);
  EXPECT_FALSE(resizable_pool<throwing_growth>);
  EXPECT_FALSE(resizable_pool<silent_shrink>);
  EXPECT_FALSE(resizable_pool<changes_when_asked>);
}

/// Takes its units from a budget; refuses a call on request.
class counted_pool {
 public:
  counted_pool(memory_budget& budget, std::uint64_t unit, std::uint64_t units)
      : budget_(budget), unit_(unit) {
    EXPECT_EQ(grow(units), status::ok);
  }
  [[nodiscard]] std::uint64_t unit_bytes() const noexcept { return unit_; }
  [[nodiscard]] std::uint64_t capacity() const noexcept { return units_; }
  [[nodiscard]] std::uint64_t in_use() const noexcept { return 0; }
  [[nodiscard]] std::uint64_t peak() const noexcept { return 0; }
  [[nodiscard]] bool drained() const noexcept { return is_drained; }
  void reset_peak() noexcept {}
  status shrink(std::uint64_t units) noexcept {
    if (refuse_in-- == 0) return status::busy;
    budget_.give_back((units_ - units) * unit_);
    units_ = units;
    return status::ok;
  }
  status grow(std::uint64_t units) noexcept {
    if (refuse_in-- == 0 || !budget_.take((units - units_) * unit_)) return status::exceeds_memory;
    units_ = units;
    return status::ok;
  }
  bool is_drained = true;
  int refuse_in = -1;  ///< calls from now; negative: never

 private:
  memory_budget& budget_;
  std::uint64_t unit_;
  std::uint64_t units_ = 0;
};

struct two_pools {
  memory_budget budget{100};
  counted_pool experts{budget, 10, 6};
  counted_pool kv{budget, 2, 20};
};

TEST(resize_both, never_exceeds_the_budget) {
  support::random_source random(4);
  for (int n = 0; n < 500; ++n) {
    two_pools p;
    for (int move = 0; move < 10; ++move) {
      const auto cap = random.below(11);
      const auto blocks = (100 - cap * 10) / 2;
      ASSERT_EQ(random.one_in(2) ? resize_both(p.experts, cap, p.kv, blocks)
                                 : resize_both(p.kv, blocks, p.experts, cap),
                status::ok);
      EXPECT_EQ(p.experts.capacity(), cap);
      EXPECT_EQ(p.kv.capacity(), blocks);
    }
    EXPECT_LE(p.budget.peak(), 100U);
  }
}

// (D3): whatever is refused, the earlier split remains and works.
TEST(resize_both, a_refusal_keeps_the_split) {
  for (const int first : {-1, 0}) {
    for (const int second : {-1, 0}) {
      if (first == second) continue;
      two_pools p;
      p.experts.refuse_in = first;
      p.kv.refuse_in = second;
      EXPECT_NE(resize_both(p.experts, 4, p.kv, 30), status::ok);
      EXPECT_EQ(p.experts.capacity(), 6U);
      EXPECT_EQ(p.kv.capacity(), 20U);
      EXPECT_EQ(p.budget.in_use(), 100U);
      p.experts.refuse_in = first;
      p.kv.refuse_in = second;
      EXPECT_NE(resize_both(p.experts, 8, p.kv, 10), status::ok);
      EXPECT_EQ(p.experts.capacity(), 6U);
      EXPECT_EQ(p.kv.capacity(), 20U);
    }
  }
}

TEST(resize_both, growth_of_both_is_undone_if_the_second_is_refused) {
  two_pools p;
  ASSERT_EQ(resize_both(p.experts, 2, p.kv, 5), status::ok);
  p.kv.refuse_in = 0;
  EXPECT_EQ(resize_both(p.experts, 5, p.kv, 10), status::exceeds_memory);
  EXPECT_EQ(p.experts.capacity(), 2U);
  EXPECT_EQ(p.kv.capacity(), 5U);
}

// Units that were just freed cannot be taken again: the smaller pool stays usable.
TEST(resize_both, reports_if_the_undo_is_refused_too) {
  two_pools p;
  p.kv.refuse_in = 0;
  p.experts.refuse_in = 1;
  EXPECT_EQ(resize_both(p.experts, 4, p.kv, 30), status::exceeds_memory);
  EXPECT_EQ(p.experts.capacity(), 4U);
  EXPECT_EQ(p.kv.capacity(), 20U);
}

TEST(resize_both, both_must_be_drained) {
  two_pools p;
  p.kv.is_drained = false;
  EXPECT_EQ(resize_both(p.experts, 4, p.kv, 30), status::busy);
  p.kv.is_drained = true;
  p.experts.is_drained = false;
  EXPECT_EQ(resize_both(p.experts, 4, p.kv, 30), status::busy);
  EXPECT_EQ(p.experts.capacity(), 6U);
}

TEST(resize_both, of_nothing_calls_no_pool) {
  two_pools p;
  p.kv.refuse_in = 0;
  p.experts.refuse_in = 0;
  EXPECT_EQ(resize_both(p.experts, 6, p.kv, 20), status::ok);
}

}  // namespace
}  // namespace hotset::resizable_pool_test
