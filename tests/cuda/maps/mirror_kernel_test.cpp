// SPDX-License-Identifier: Apache-2.0
#include "hotset/cuda/maps/mirror_kernel.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mirror_samples.hpp"
#include "written_ids.hpp"

namespace hotset::cuda::mirror_kernel_test {
namespace {

using mirror_samples::visit;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::int32_t untouched = -77;

struct answer {
  std::vector<slot_id> slots;
  std::vector<expert_id> missing;  // with its full capacity
  mirror_counts counts;

  explicit answer(const visit& v)
      : slots(v.ids.size(), slot_id{untouched}), missing(v.most_missing(), expert_id{untouched}) {}
  friend bool operator==(const answer&, const answer&) = default;
  [[nodiscard]] std::vector<expert_id> listed() const {
    return {missing.begin(), missing.begin() + static_cast<std::ptrdiff_t>(counts.missing)};
  }
};

visit visit_of(std::initializer_list<std::int32_t> ids, std::initializer_list<std::int32_t> row) {
  return {support::expert_ids(ids), support::slot_ids(row)};
}

answer host(const visit& v) {
  answer a(v);
  unique_ids unique(v.row.size(), v.ids.size());
  a.counts = mirror_on_host(unique, v.ids, v.row, a.slots, a.missing);
  return a;
}

/// Emulates the kernel of src/cuda/mirror_kernel.cu with `threads` instead of mirror_threads() threads.
class emulated_block {
 public:
  emulated_block(std::uint32_t threads, std::uint64_t seed) : threads_(threads), random_(seed) {}

  answer run(const visit& v) {
    answer a(v);
    const auto count = static_cast<std::uint32_t>(v.ids.size());
    const auto experts = static_cast<std::uint32_t>(v.row.size());
    std::vector<std::uint32_t> first(experts, 0U);  // values that an earlier kernel may leave
    step([&](std::uint32_t thread) {
      for (auto e = thread; e < experts; e += threads_) first[e] = mirror_step::nowhere;
    });
    bool any_missing = false;
    step([&](std::uint32_t thread) {
      for (auto i = thread; i < count; i += threads_) {
        const auto id = v.ids[i];
        const auto found = mirror_step::look_up(id, v.row.data(), experts);
        a.slots[i] = found.slot;
        if (found.is_ignored) ++a.counts.ignored;
        if (found.is_missing) {
          auto& earliest = first.at(static_cast<std::size_t>(id));
          earliest = std::min(earliest, i);
          any_missing = true;
        }
      }
    });
    const auto warps = threads_ / mirror_step::warp_size;
    std::vector<std::uint32_t> firsts(warps);  // one bit per lane
    std::vector<std::uint32_t> firsts_of_warp(warps);
    for (std::uint32_t begin = 0; any_missing && begin < count; begin += threads_) {
      std::fill(firsts.begin(), firsts.end(), 0U);
      step([&](std::uint32_t thread) {
        const auto lane = thread % mirror_step::warp_size;
        if (mirror_step::is_first(v.ids.data(), count, begin + thread, first.data(), experts))
          firsts[thread / mirror_step::warp_size] |= 1U << lane;
      });
      for (std::uint32_t w = 0; w < warps; ++w)
        firsts_of_warp[w] = static_cast<std::uint32_t>(std::popcount(firsts[w]));
      std::uint32_t in_round = 0;
      step([&](std::uint32_t thread) {
        const auto warp = thread / mirror_step::warp_size;
        const auto lane = thread % mirror_step::warp_size;
        const auto sums = mirror_step::sum_warps(firsts_of_warp.data(), warps, warp);
        const auto in_warp = static_cast<std::uint32_t>(
            std::popcount(firsts[warp] & mirror_step::lanes_before(lane)));
        if ((firsts[warp] >> lane & 1U) != 0)
          a.missing.at(a.counts.missing + sums.before + in_warp) = v.ids[begin + thread];
        in_round = sums.all;
      });
      a.counts.missing += in_round;
    }
    return a;
  }

 private:
  template <class Body>
  void step(Body body) {
    // Shuffles enough for one step: threads start anywhere and run in either direction.
    const auto from = static_cast<std::uint32_t>(random_.below(threads_));
    const bool backwards = random_.one_in(2);
    for (std::uint32_t n = 0; n < threads_; ++n)
      body((from + (backwards ? threads_ - n : n)) % threads_);
  }

  std::uint32_t threads_;
  support::random_source random_;
};

TEST(mirror_on_host, gives_slots_and_lists_absent_experts_in_order_of_first_appearance) {
  const auto a = host(visit_of({5, 1, 5, 0, 3, 1, 2}, {40, -1, 7, -1, 11, -1}));
  EXPECT_THAT(a.slots, ElementsAre(-1, -1, -1, 40, -1, -1, 7));
  EXPECT_THAT(a.listed(), ElementsAre(5, 1, 3));
  EXPECT_EQ(a.counts, (mirror_counts{3, 0}));
}

// Hazards 4 and 6: an absent expert reads slot 0; an id out of range wraps or names another expert.
TEST(mirror_on_host, ids_out_of_range_are_ignored_and_counted_and_have_no_slot) {
  const auto a =
      host(visit_of({-1, 2, 6, 0, 1'000'000, -2'000'000'000, 6}, {40, 3, -1, -1, 11, -1}));
  EXPECT_THAT(a.slots, ElementsAre(-1, -1, -1, 40, -1, -1, -1));
  EXPECT_THAT(a.listed(), ElementsAre(2));
  EXPECT_EQ(a.counts, (mirror_counts{1, 5}));
}

TEST(mirror_on_host, every_negative_slot_is_absence) {
  const auto a = host(visit_of({0, 1}, {-2, 5}));
  EXPECT_THAT(a.slots, ElementsAre(-1, 5));
  EXPECT_THAT(a.listed(), ElementsAre(0));
}

TEST(mirror_on_host, writes_no_more_than_the_list) {
  const auto a = host(visit_of({4, 4, 0, 4}, {-1, 1, 2, 3, -1}));
  EXPECT_THAT(a.missing, ElementsAre(4, 0, untouched, untouched));
}

TEST(mirror_on_host, a_visit_of_hits_or_without_ids_lists_no_miss) {
  EXPECT_THAT(host(visit_of({1, 0, 1}, {4, 9})).listed(), IsEmpty());
  EXPECT_EQ(host(visit_of({}, {4, 9})).counts, (mirror_counts{0, 0}));
}

TEST(mirror_on_host, agrees_with_sets_on_random_visits) {
  support::random_source random(11);
  for (int round = 0; round < 3000; ++round) {
    const auto v = mirror_samples::random_visit(random);
    const auto a = host(v);
    const auto experts = static_cast<std::int32_t>(v.row.size());
    std::vector<expert_id> missing;
    std::set<expert_id> seen;
    std::uint32_t ignored = 0;
    for (std::size_t i = 0; i < v.ids.size(); ++i) {
      const auto id = v.ids[i];
      const bool is_expert = id >= 0 && id < experts;
      ignored += is_expert ? 0U : 1U;
      const auto slot = is_expert ? v.row[static_cast<std::size_t>(id)] : no_slot;
      ASSERT_EQ(a.slots[i], slot);
      if (is_expert && slot == no_slot && seen.insert(id).second) missing.push_back(id);
    }
    ASSERT_EQ(a.listed(), missing) << "round " << round;
    ASSERT_EQ(a.counts.ignored, ignored) << "round " << round;
  }
}

TEST(mirror_step, a_thread_behind_the_last_id_lists_nothing) {
  const auto ids = support::expert_ids({0, 1});  // of a visit with one id
  const std::vector<std::uint32_t> first{0, 1};
  EXPECT_TRUE(mirror_step::is_first(ids.data(), 1, 0, first.data(), 2));
  EXPECT_FALSE(mirror_step::is_first(ids.data(), 1, 1, first.data(), 2));
}

TEST(mirror_block, equals_the_host_on_random_visits) {
  support::random_source random(0x300d);
  for (int round = 0; round < 120'000; ++round) {
    const auto v = mirror_samples::random_visit(random);
    const auto threads = mirror_threads(static_cast<std::int64_t>(v.ids.size()),
                                        static_cast<std::int32_t>(v.row.size()));
    ASSERT_EQ(emulated_block(threads, random.next()).run(v), host(v)) << "round " << round;
  }
}

// Rounds, warps and lanes each add an offset.
TEST(mirror_block, equals_the_host_whatever_the_number_of_threads) {
  support::random_source random(0xb10c);
  for (int round = 0; round < 4000; ++round) {
    const auto v = mirror_samples::random_visit(random);
    const auto threads = mirror_step::warp_size * static_cast<std::uint32_t>(1 + random.below(8));
    ASSERT_EQ(emulated_block(threads, random.next()).run(v), host(v)) << "round " << round;
  }
}

TEST(mirror_block, lists_a_whole_layer_in_many_rounds) {
  visit v;
  for (std::int32_t e = 8192; e-- > 0;) v.ids.insert(v.ids.end(), 2, expert_id{e});
  v.row.assign(8192, no_slot);
  const auto a = emulated_block(1024, 1).run(v);
  EXPECT_EQ(a, host(v));
  EXPECT_EQ(a.counts.missing, 8192U);
  EXPECT_EQ(a.missing.front(), 8191);
  EXPECT_EQ(a.missing.back(), 0);
}

/// An array far from all others. It is never read.
template <class T>
T* somewhere(std::uintptr_t n) {
  return reinterpret_cast<T*>(n << 36U);
}

class mirror_launch : public testing::Test {
 protected:
  mirror_arguments good() const { return {ids, 12, row, 16, slots, missing, counts}; }
  expert_id* const ids = somewhere<expert_id>(1);
  slot_id* const row = somewhere<slot_id>(2);
  slot_id* const slots = somewhere<slot_id>(3);
  expert_id* const missing = somewhere<expert_id>(4);
  mirror_counts* const counts = somewhere<mirror_counts>(5);
};

#define EXPECT_REFUSED(change)                                 \
  do {                                                         \
    auto a = good();                                           \
    change;                                                    \
    EXPECT_EQ(check(a), error_code::invalid_value) << #change; \
  } while (false)

TEST_F(mirror_launch, accepts_consistent_arrays) { EXPECT_EQ(check(good()), error_code::success); }

TEST_F(mirror_launch, takes_a_visit_of_nothing_without_arrays) {
  auto a = good();
  a.count = 0;
  a.ids = nullptr;
  a.slots = nullptr;
  a.missing = nullptr;
  EXPECT_EQ(check(a), error_code::success);
}

TEST_F(mirror_launch, the_list_needs_no_more_room_than_there_are_ids_or_experts) {
  auto a = good();
  a.experts = 4;
  a.slots = reinterpret_cast<slot_id*>(a.missing + 4);  // directly after the list
  a.count = 8;
  EXPECT_EQ(check(a), error_code::success);
  a.experts = 5;
  EXPECT_EQ(check(a), error_code::invalid_value);
}

TEST_F(mirror_launch, accepts_the_largest_shapes_and_refuses_larger_ones) {
  auto largest = good();
  largest.count = mirror_most_ids;
  largest.experts = mirror_most_experts;
  EXPECT_EQ(check(largest), error_code::success);
  EXPECT_REFUSED(a.count = -1);
  EXPECT_REFUSED(a.count = mirror_most_ids + 1);
  EXPECT_REFUSED(a.experts = 0);
  EXPECT_REFUSED(a.experts = -5);
  EXPECT_REFUSED(a.experts = mirror_most_experts + 1);
}

TEST_F(mirror_launch, refuses_absent_arrays) {
  EXPECT_REFUSED(a.ids = nullptr);
  EXPECT_REFUSED(a.row = nullptr);
  EXPECT_REFUSED(a.slots = nullptr);
  EXPECT_REFUSED(a.missing = nullptr);
  EXPECT_REFUSED(a.counts = nullptr);
}

TEST_F(mirror_launch, refuses_arrays_that_are_not_aligned) {
  EXPECT_REFUSED(a.row =
                     reinterpret_cast<const slot_id*>(reinterpret_cast<const char*>(a.row) + 2));
}

// The kernel still reads ids and row after its first write.
TEST_F(mirror_launch, refuses_results_that_overlap_anything) {
  EXPECT_REFUSED(a.slots = reinterpret_cast<slot_id*>(ids));
  EXPECT_REFUSED(a.slots = row + 15);
  EXPECT_REFUSED(a.missing = ids + 11);
  EXPECT_REFUSED(a.missing = reinterpret_cast<expert_id*>(slots));
  EXPECT_REFUSED(a.counts = reinterpret_cast<mirror_counts*>(row + 14));
  EXPECT_REFUSED(a.counts = reinterpret_cast<mirror_counts*>(missing));
}

TEST_F(mirror_launch, ids_and_row_are_only_read_and_may_overlap) {
  auto a = good();
  a.ids = reinterpret_cast<const expert_id*>(row);
  EXPECT_EQ(check(a), error_code::success);
}

TEST(mirror_threads, are_whole_warps_up_to_a_whole_block) {
  EXPECT_EQ(mirror_threads(0, 1), 32U);
  EXPECT_EQ(mirror_threads(8, 32), 32U);
  EXPECT_EQ(mirror_threads(8, 33), 64U);
  EXPECT_EQ(mirror_threads(65, 8), 96U);
  EXPECT_EQ(mirror_threads(1024, 8), 1024U);
  EXPECT_EQ(mirror_threads(1025, 8), 1024U);
  EXPECT_EQ(mirror_threads(mirror_most_ids, mirror_most_experts), 1024U);
}

}  // namespace
}  // namespace hotset::cuda::mirror_kernel_test
