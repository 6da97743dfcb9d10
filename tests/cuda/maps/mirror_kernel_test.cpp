// SPDX-License-Identifier: Apache-2.0
// What a launch refuses. The kernel itself is tested in tests/gpu, its steps in mirror_test.cpp.
#include "hotset/cuda/maps/mirror_kernel.hpp"

#include <cstdint>

#include <gtest/gtest.h>

namespace hotset::cuda::mirror_kernel_test {
namespace {

/// An array far from every other. Nobody reads it.
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

TEST_F(mirror_launch, takes_what_belongs_together) {
  EXPECT_EQ(check(good()), error_code::success);
}

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
  a.slots = reinterpret_cast<slot_id*>(a.missing + 4);  // right behind the list
  a.count = 8;
  EXPECT_EQ(check(a), error_code::success);
  a.experts = 5;
  EXPECT_EQ(check(a), error_code::invalid_value);
}

TEST_F(mirror_launch, takes_the_largest_shapes_and_refuses_what_is_beyond) {
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

// The kernel reads ids and row after it has begun to write.
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
