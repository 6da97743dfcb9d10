// SPDX-License-Identifier: Apache-2.0
#include "hotset/planning/curve/sample_filter.hpp"

#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "random_source.hpp"

namespace hotset::sample_filter_test {
namespace {

/// The hash in other words: with a division where there is a shift.
std::uint32_t hash_of(std::uint64_t key, std::uint64_t seed) {
  constexpr std::uint64_t half = std::uint64_t{1} << 32U;
  auto x = (key + seed) * 0x9e3779b97f4a7c15U;
  x = (x ^ (x / half)) * 0xd6e8feb86659fd93U;
  return static_cast<std::uint32_t>(x / half);
}

using selected = std::vector<std::uint32_t>;

// Whole vectors and what is left of them, from no id at all to as many as it takes.
TEST(sample_filter, selects_what_one_look_at_each_selects) {
  support::random_source random(1);
  constexpr std::uint64_t all = std::uint64_t{1} << 32U;
  for (std::size_t length = 0; length <= sample_filter::most_ids; ++length) {
    const auto seed = random.one_in(3) ? 0 : random.next();
    const sample_filter filter(seed);
    std::vector<expert_id> ids(length);
    for (auto& id : ids)
      id = random.one_in(8) ? static_cast<expert_id>(random.next())
                            : expert_id{random.id_below(1000)};
    for (const auto limit :
         {std::uint64_t{0}, std::uint64_t{1}, all / 100, all / 10, all / 2 + 1, all - 1, all}) {
      selected expected;
      for (const auto id : ids)
        if (hash_of(static_cast<std::uint32_t>(id), seed) < limit)
          expected.push_back(static_cast<std::uint32_t>(id));
      sample_filter::keys out{};
      const auto count = filter.select(ids, limit, out);
      ASSERT_EQ(selected(out.data(), out.data() + count), expected) << length << " ids, " << limit;
      sample_filter::keys same{};
      const auto as_many = filter.select_one_by_one(ids, limit, same);
      ASSERT_EQ(selected(same.data(), same.data() + as_many), expected) << length << ", " << limit;
    }
  }
  RecordProperty("vectors", sample_filter::has_vectors() ? "yes" : "no");
}

// The limit itself is outside, to the last bit.
TEST(sample_filter, a_key_is_selected_from_its_own_hash_on) {
  support::random_source random(2);
  for (int n = 0; n < 1000; ++n) {
    const sample_filter filter(random.next());
    const auto key = static_cast<expert_id>(random.below(std::numeric_limits<std::int32_t>::max()));
    const std::uint64_t hash = filter.hash(static_cast<std::uint32_t>(key));
    const std::vector<expert_id> ids(9, key);
    sample_filter::keys out{};
    EXPECT_EQ(filter.select(ids, hash, out), 0U);
    EXPECT_EQ(filter.select(ids, hash + 1, out), 9U);
  }
}

TEST(sample_filter, takes_neighbours_at_the_rate) {
  constexpr std::uint64_t limit = (std::uint64_t{1} << 32U) / 50;
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const sample_filter filter(seed);
    std::size_t found = 0;
    for (std::uint32_t key = 0; key < 100000; ++key) found += filter.hash(key) < limit ? 1U : 0U;
    EXPECT_NEAR(static_cast<double>(found), 2000, 220) << "seed " << seed;  // five deviations
  }
}

}  // namespace
}  // namespace hotset::sample_filter_test
