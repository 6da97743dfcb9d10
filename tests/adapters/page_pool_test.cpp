// SPDX-License-Identifier: Apache-2.0
#include "hotset/adapters/page_pool.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "failing_memory.hpp"
#include "hotset/transfer/memory/host_virtual_memory.hpp"
#include "random_source.hpp"

namespace hotset::page_pool_test {
namespace {

using testing::HasSubstr;
using enum memory_status;
using memory_type = support::failing_memory<host_virtual_memory>;
using pool_type = page_pool<memory_type>;

static_assert(resizable_pool<pool_type>);
static_assert(!std::is_copy_constructible_v<pool_type>);
static_assert(std::is_nothrow_move_constructible_v<pool_type>);

struct page_pool_steps : testing::Test {
  memory_type memory{host_virtual_memory::create().value()};
  const std::size_t unit = memory.granularity();
  memory_budget budget{6 * unit};

  struct picture {
    std::uint64_t capacity, in_use, peak, bound, free, counted, physical;
    friend bool operator==(const picture&, const picture&) = default;
  };

  /// A pool of at most `most` pages, of which `pages` exist.
  pool_type pool(std::uint32_t pages, std::uint32_t most) {
    auto made =
        pool_type::create(memory, {.page_bytes = unit, .most_pages = most}, &budget).value();
    std::vector<page_id> some(pages);
    EXPECT_EQ(made.take(some), ok);
    for (const auto page : some) EXPECT_EQ(made.give(page), ok);
    made.reset_peak();
    return made;
  }
  picture now(const pool_type& p) {
    return {p.capacity(),
            p.in_use(),
            p.peak(),
            p.bound(),
            p.free(),
            budget.in_use(),
            memory.behind().physical_bytes()};
  }
  void TearDown() override {
    EXPECT_EQ(memory.behind().physical_bytes(), 0U);
    EXPECT_EQ(budget.in_use(), 0U);
  }
};

TEST_F(page_pool_steps, a_page_is_free_after_its_last_user_and_is_reused_first) {
  auto p = pool(3, 3);
  std::array<page_id, 2> two{};
  ASSERT_EQ(p.take(two), ok);
  ASSERT_EQ(p.share(two[0]), ok);
  EXPECT_EQ(p.uses(two[0]), 2U);
  ASSERT_EQ(p.give(two[0]), ok);
  EXPECT_EQ(p.in_use(), 2U);
  ASSERT_EQ(p.give(two[0]), ok);
  EXPECT_EQ(p.uses(two[0]), 0U);
  EXPECT_EQ(p.in_use(), 1U);
  std::array<page_id, 1> again{};
  ASSERT_EQ(p.take(again), ok);
  EXPECT_EQ(again[0], two[0]);
  EXPECT_EQ(p.peak(), 2U);
  ASSERT_EQ(p.give(again[0]), ok);
  p.reset_peak();
  EXPECT_EQ(p.peak(), 1U);
}

// Lowering the limit removes no page.
TEST_F(page_pool_steps, pages_that_exist_serve_beyond_the_limit) {
  auto p = pool(2, 4);
  budget.set_limit(unit);
  EXPECT_EQ(p.attainable(), 2U);
  EXPECT_EQ(p.grow(2), status::ok);
  std::array<page_id, 2> two{};
  EXPECT_EQ(p.take(two), ok);
  std::array<page_id, 1> third{};
  EXPECT_EQ(p.take(third), out_of_memory);
  for (const auto page : two) EXPECT_EQ(p.give(page), ok);
}

TEST_F(page_pool_steps, keeps_to_the_size_that_it_was_given) {
  auto p = pool(4, 5);
  std::array<page_id, 2> two{};
  ASSERT_EQ(p.take(two), ok);
  EXPECT_EQ(p.shrink(1), status::invalid_argument);
  EXPECT_EQ(p.shrink(5), status::invalid_argument);
  memory.fail(1);
  EXPECT_EQ(p.shrink(3), status::busy);
  EXPECT_EQ(now(p), (picture{4, 2, 2, 5, 2, 4 * unit, 4 * unit}));
  ASSERT_EQ(p.shrink(3), status::ok);
  EXPECT_EQ(now(p), (picture{3, 2, 2, 3, 1, 3 * unit, 3 * unit}));
  std::array<page_id, 2> more{};
  EXPECT_EQ(p.take(more), out_of_memory) << "another pool has the memory now";
  EXPECT_EQ(p.grow(2), status::invalid_argument);
  EXPECT_EQ(p.grow(6), status::exceeds_memory) << "more than there may ever be";
  memory.fail(1);
  EXPECT_EQ(p.grow(4), status::exceeds_memory);
  ASSERT_EQ(p.grow(4), status::ok);
  EXPECT_EQ(now(p), (picture{4, 2, 2, 4, 2, 4 * unit, 4 * unit}));
  EXPECT_EQ(p.take(more), ok);
}

TEST_F(page_pool_steps, moves_with_all_it_owns) {
  auto first = pool(2, 3);
  std::array<page_id, 1> one{};
  ASSERT_EQ(first.take(one), ok);
  auto second = std::move(first);
  EXPECT_EQ(second.uses(one[0]), 1U);
  EXPECT_EQ(now(second), (picture{2, 1, 1, 3, 1, 2 * unit, 2 * unit}));
}

TEST_F(page_pool_steps, a_pool_that_cannot_be_has_a_reason) {
  const auto reason = [&](page_pool_config setup) {
    const auto made = pool_type::create(memory, setup, &budget);
    return made ? std::string("accepted") : made.error().message;
  };
  EXPECT_THAT(reason({0, 1}), HasSubstr("page_bytes = 0, accepted: 1.."));
  EXPECT_THAT(reason({(std::size_t{1} << 36) + unit, 1}), HasSubstr("accepted: 1.."));
  EXPECT_THAT(reason({unit + 1, 1}), HasSubstr("accepted: multiples of"));
  EXPECT_THAT(reason({unit, (1U << 24U) + 1}), HasSubstr("most_pages = 16777217"));
}

/// Expected state of a pool, as numbers.
struct pool_model {
  std::uint64_t capacity, bound, most, budget;
  std::map<page_id, std::uint32_t> uses{};

  [[nodiscard]] std::uint64_t free() const { return capacity - uses.size(); }
};

TEST_F(page_pool_steps, agrees_with_a_simple_model_after_each_of_100000_operations) {
  support::random_source random(11);
  auto p = pool(2, 8);
  pool_model model{2, 8, 8, 6};
  std::array<std::uint64_t, 2> outcomes{};
  for (int n = 0; n < 100'000; ++n) {
    SCOPED_TRACE(n);
    const bool arms = random.one_in(4);
    memory.fail(arms ? 1 + random.below(3) : 0);
    const auto number = random.below(9);
    auto done = false;
    auto expected = false;
    auto after = model;
    std::array<page_id, 8> pages{};
    const auto taken = std::span(pages).first(std::min<std::uint64_t>(number, 8));
    const auto page = static_cast<page_id>(number);
    switch (random.below(7)) {
      case 0: {
        const auto missing = number - std::min(number, model.free());
        expected = number <= 8 && model.capacity + missing <= model.bound &&
                   model.capacity + missing <= model.budget;
        done = p.take(taken) == ok;
        after.capacity += missing;
        for (std::size_t i = 0; done && i < taken.size(); ++i)
          ASSERT_TRUE(after.uses.emplace(taken[i], 1).second) << "taken twice";
        break;
      }
      case 1:
        expected = model.uses.contains(page);
        done = p.share(page) == ok;
        ++after.uses[page];
        break;
      case 2:
      case 3:
      case 4:
        expected = model.uses.contains(page);
        done = p.give(page) == ok;
        if (--after.uses[page] == 0) after.uses.erase(page);
        break;
      case 5:
        expected = true;
        done = p.trim(number) == ok;
        after.capacity = model.uses.size() + std::min(model.free(), number);
        break;
      default:
        if (random.one_in(2)) {
          expected = number >= model.uses.size() && number <= model.capacity;
          done = p.shrink(number) == status::ok;
        } else {
          expected = number >= model.capacity && number <= std::min(model.most, model.budget);
          done = p.grow(number) == status::ok;
        }
        after.capacity = after.bound = number;
    }
    const bool failed_a_step = arms && !memory.armed();
    memory.fail(0);
    ASSERT_EQ(done, expected && !failed_a_step);
    if (done) model = after;
    ++outcomes[done ? 1 : 0];
    ASSERT_EQ(p.capacity(), model.capacity);
    ASSERT_EQ(p.in_use(), model.uses.size());
    ASSERT_EQ(p.free(), model.free());
    ASSERT_EQ(p.bound(), model.bound);
    ASSERT_EQ(p.attainable(), std::min(model.bound, model.budget));
    ASSERT_EQ(budget.in_use(), model.capacity * unit);
    ASSERT_EQ(memory.behind().physical_bytes(), model.capacity * unit);
    std::set<std::uint64_t> blocks;
    for (page_id id = 0; id < 9; ++id) {
      const auto u = model.uses.find(id);
      ASSERT_EQ(p.uses(id), u == model.uses.end() ? 0U : u->second);
      if (u == model.uses.end()) continue;
      ASSERT_TRUE(blocks.insert(p.block(id).id).second) << "two pages of one block";
    }
  }
  EXPECT_GT(outcomes[0], 10'000U);
  EXPECT_GT(outcomes[1], 10'000U);
}

}  // namespace
}  // namespace hotset::page_pool_test
