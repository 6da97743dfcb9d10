// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The suite of pools that return memory and take more. An entry builds the pool over a budget, fills it, holds it
/// up, and reports its content.
///
/// | member of an entry | meaning |
/// |---|---|
/// | `pool_type`, `pool` | `resizable_units` units, counted by `budget`, which has room for `resizable_limit` |
/// | `most_units` | largest size with any memory; growing beyond is an error of either kind |
/// | `use_varies` | units become unused when their users end |
/// | `fill()` | every unit holds something, two are in use |
/// | `let_go()` | ends users of units, if possible |
/// | `serve(random)` | a while of the pool's normal work |
/// | `held()` | units that hold something |
/// | `places()` | place of each held thing; a failure if its bytes are wrong |
/// | `hold_up()` | the pool is not drained while the returned object lives |

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/core/memory_budget.hpp"
#include "hotset/transfer/memory/resizable_pool.hpp"
#include "random_source.hpp"

namespace hotset::support {

inline constexpr std::uint64_t resizable_units = 6;
inline constexpr std::uint64_t resizable_limit = 10;

using content_places = std::map<std::string, const void*>;

inline std::vector<std::string> names_of(const content_places& places) {
  std::vector<std::string> names;
  for (const auto& [name, at] : places) names.push_back(name);
  return names;
}

/// Takes the rest of the budget except this many bytes; returns it at the end.
class other_user {
 public:
  other_user(memory_budget& budget, std::uint64_t left)
      : budget_(budget), bytes_(budget.limit() - budget.in_use() - left) {
    EXPECT_TRUE(budget_.take(bytes_));
  }
  other_user(const other_user&) = delete;
  other_user& operator=(const other_user&) = delete;
  ~other_user() { budget_.give_back(bytes_); }

 private:
  memory_budget& budget_;
  std::uint64_t bytes_;
};

template <class Entry>
class resizable_conformance : public testing::Test {
 protected:
  static_assert(resizable_pool<typename Entry::pool_type>);

  struct picture {
    std::uint64_t capacity = 0;
    std::uint64_t in_use = 0;
    std::uint64_t peak = 0;
    std::uint64_t held = 0;
    std::uint64_t bytes = 0;
    content_places places{};
    friend bool operator==(const picture&, const picture&) = default;
    friend void PrintTo(const picture& p, std::ostream* out) {
      *out << p.capacity << " units, " << p.in_use << " in use (" << p.peak << " at most), "
           << p.held << " hold something, " << p.bytes << " bytes taken, "
           << testing::PrintToString(p.places);
    }
  };

  auto& pool() { return entry.pool; }
  [[nodiscard]] std::uint64_t unit() { return pool().unit_bytes(); }
  picture now() {
    return {pool().capacity(), pool().in_use(),       pool().peak(),
            entry.held(),      entry.budget.in_use(), entry.places()};
  }
  /// Pre: the budget has no other user.
  void expect_memory_of_capacity() {
    EXPECT_EQ(entry.budget.in_use(), pool().capacity() * unit());
    EXPECT_LE(entry.budget.peak(), entry.budget.limit());
    EXPECT_LE(pool().in_use(), pool().capacity());
    EXPECT_LE(pool().in_use(), pool().peak());
  }
  /// Makes a call that must fail, and checks that it had no effect.
  template <class Call>
  void expect_refused(status why, Call call) {
    const auto before = now();
    EXPECT_EQ(call(), why);
    EXPECT_EQ(now(), before);
  }

  Entry entry;
};
TYPED_TEST_SUITE_P(resizable_conformance);

TYPED_TEST_P(resizable_conformance, has_the_memory_of_its_capacity) {
  EXPECT_GT(this->unit(), 0U);
  EXPECT_EQ(this->pool().capacity(), resizable_units);
  EXPECT_TRUE(this->pool().drained());
  this->expect_memory_of_capacity();
  this->entry.fill();
  EXPECT_EQ(this->pool().in_use(), 2U);
  EXPECT_EQ(this->entry.held(), resizable_units);
  this->expect_memory_of_capacity();
}

TYPED_TEST_P(resizable_conformance, shrinks_down_to_used_units_and_keeps_them) {
  for (auto units = resizable_units; units >= 2; --units) {
    SCOPED_TRACE(units);
    TypeParam fresh;
    fresh.fill();
    const auto before = fresh.places();
    const auto bytes = fresh.budget.in_use();
    ASSERT_EQ(fresh.pool.shrink(units), status::ok);
    EXPECT_EQ(fresh.pool.capacity(), units);
    EXPECT_EQ(bytes - fresh.budget.in_use(), (resizable_units - units) * fresh.pool.unit_bytes());
    EXPECT_EQ(fresh.held(), units);  // evicts no more than necessary
    EXPECT_EQ(fresh.pool.in_use(), 2U);
    EXPECT_THAT(names_of(before), testing::IsSupersetOf(names_of(fresh.places())));
    if (TypeParam::use_varies) {
      EXPECT_EQ(names_of(before), names_of(fresh.places()));
    }
  }
}

TYPED_TEST_P(resizable_conformance, does_not_shrink_to_more_nor_grow_to_less) {
  this->entry.fill();
  constexpr auto most = std::numeric_limits<std::uint64_t>::max();
  for (const std::uint64_t units :
       {resizable_units + 1, resizable_limit, (std::uint64_t{1} << 32U) + 3, most})
    this->expect_refused(status::invalid_argument, [&] { return this->pool().shrink(units); });
  for (std::uint64_t units = 0; units < resizable_units; ++units)
    this->expect_refused(status::invalid_argument, [&] { return this->pool().grow(units); });
}

TYPED_TEST_P(resizable_conformance, grows_up_to_the_budget_and_keeps_all) {
  this->entry.fill();
  const auto before = this->now();
  for (auto units = resizable_units + 1; units <= resizable_limit; ++units) {
    ASSERT_EQ(this->pool().grow(units), status::ok);
    const auto after = this->now();
    EXPECT_EQ(after.capacity, units);
    EXPECT_EQ(after.in_use, before.in_use);
    EXPECT_EQ(after.peak, before.peak);
    EXPECT_EQ(after.held, before.held);
    EXPECT_EQ(names_of(after.places), names_of(before.places));
    this->expect_memory_of_capacity();
  }
  random_source random(3);
  this->entry.serve(random);  // uses the added units too
  (void)this->entry.places();
}

TYPED_TEST_P(resizable_conformance, is_not_resized_while_it_is_not_drained) {
  this->entry.fill();
  {
    const auto held = this->entry.hold_up();
    EXPECT_FALSE(this->pool().drained());
    for (const auto units : {resizable_units - 1, resizable_units})
      this->expect_refused(status::busy, [&] { return this->pool().shrink(units); });
    for (const auto units : {resizable_units, resizable_units + 1})
      this->expect_refused(status::busy, [&] { return this->pool().grow(units); });
  }
  EXPECT_TRUE(this->pool().drained());
  EXPECT_EQ(this->pool().shrink(resizable_units - 1), status::ok);
  EXPECT_EQ(this->pool().grow(resizable_units), status::ok);
}

// Memory runs out after every twelfth of the growth's need.
TYPED_TEST_P(resizable_conformance, refused_memory_changes_nothing) {
  this->entry.fill();
  constexpr auto wanted = resizable_units + 3;
  const auto needed = 3 * this->unit();
  for (std::uint64_t twelfth = 0; twelfth <= 12; ++twelfth) {
    SCOPED_TRACE(twelfth);
    const other_user other(this->entry.budget, std::min(needed - 1, needed * twelfth / 12));
    this->expect_refused(status::exceeds_memory, [&] { return this->pool().grow(wanted); });
  }
  const other_user other(this->entry.budget, needed);
  EXPECT_EQ(this->pool().grow(wanted), status::ok);
  (void)this->entry.places();
  EXPECT_EQ(this->entry.budget.in_use(), this->entry.budget.limit());
}

TYPED_TEST_P(resizable_conformance, returned_memory_is_available_to_others) {
  this->entry.fill();
  const other_user first(this->entry.budget, 0);
  ASSERT_EQ(this->pool().shrink(4), status::ok);
  {
    const other_user second(this->entry.budget, 0);
    EXPECT_EQ(this->entry.budget.in_use(), this->entry.budget.limit());
    this->expect_refused(status::exceeds_memory, [&] { return this->pool().grow(5); });
  }
  EXPECT_EQ(this->pool().grow(resizable_units), status::ok);
  EXPECT_EQ(this->entry.budget.peak(), this->entry.budget.limit());
}

TYPED_TEST_P(resizable_conformance, does_not_grow_beyond_all_bounds) {
  this->entry.fill();
  constexpr auto most = std::numeric_limits<std::uint64_t>::max();
  for (const auto units :
       {TypeParam::most_units + 1, (std::uint64_t{1} << 32U) + resizable_units, most / 2, most}) {
    const auto before = this->now();
    EXPECT_NE(this->pool().grow(units), status::ok) << units;
    EXPECT_EQ(this->now(), before) << units;
  }
}

TYPED_TEST_P(resizable_conformance, remembers_the_most_that_was_in_use) {
  this->entry.fill();
  const auto most = this->pool().in_use();
  this->entry.let_go();
  EXPECT_EQ(this->pool().in_use() < most, TypeParam::use_varies);
  EXPECT_EQ(this->pool().peak(), most);
  ASSERT_EQ(this->pool().shrink(3), status::ok);
  ASSERT_EQ(this->pool().grow(5), status::ok);
  EXPECT_EQ(this->pool().peak(), most);
  this->pool().reset_peak();
  EXPECT_EQ(this->pool().peak(), this->pool().in_use());
}

TYPED_TEST_P(resizable_conformance, random_sizes_while_serving) {
  this->entry.fill();
  random_source random(4);
  auto& pool = this->pool();
  int refused = 0;
  for (int n = 0; n < 300; ++n) {
    SCOPED_TRACE(n);
    this->entry.serve(random);
    const auto before = this->now();
    const auto units = random.below(resizable_limit + 1);
    const bool shrinks = random.one_in(2);
    auto expected = status::ok;
    {
      const auto free = this->entry.budget.limit() - this->entry.budget.in_use();
      const auto left = random.below(free + 1);
      const other_user other(this->entry.budget, left);
      if (shrinks ? units < before.in_use || units > before.capacity : units < before.capacity)
        expected = status::invalid_argument;
      else if (!shrinks && (units - before.capacity) * this->unit() > left)
        expected = status::exceeds_memory;
      ASSERT_EQ(shrinks ? pool.shrink(units) : pool.grow(units), expected);
    }
    this->expect_memory_of_capacity();
    if (expected != status::ok) {
      ASSERT_EQ(this->now(), before);
      ++refused;
      continue;
    }
    EXPECT_EQ(pool.capacity(), units);
    EXPECT_EQ(this->entry.held(), std::min(before.held, units));
    if (units == before.capacity) {
      EXPECT_EQ(this->now(), before);
    }
    EXPECT_THAT(names_of(before.places), testing::IsSupersetOf(names_of(this->entry.places())));
  }
  EXPECT_GT(refused, 50);
  EXPECT_LT(refused, 250);
}

REGISTER_TYPED_TEST_SUITE_P(resizable_conformance, has_the_memory_of_its_capacity,
                            shrinks_down_to_used_units_and_keeps_them,
                            does_not_shrink_to_more_nor_grow_to_less,
                            grows_up_to_the_budget_and_keeps_all,
                            is_not_resized_while_it_is_not_drained, refused_memory_changes_nothing,
                            returned_memory_is_available_to_others, does_not_grow_beyond_all_bounds,
                            remembers_the_most_that_was_in_use, random_sizes_while_serving);

}  // namespace hotset::support
