// SPDX-License-Identifier: Apache-2.0
// Launches that are refused. tests/adapters/reroute_test.cpp checks the rule, tests/gpu the kernels.
#include "hotset/cuda/maps/reroute_kernel.hpp"

#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

namespace hotset::cuda::reroute_kernel_test {
namespace {

/// An array far from all others. It is never read.
template <class T>
T* somewhere(std::uintptr_t n) {
  return reinterpret_cast<T*>(n << 36U);
}

class reroute_launch : public testing::Test {
 protected:
  reroute_arguments good() const { return {{rows, 2, 8}, ids, adapters, 3, 4, out, refused}; }
  expert_id* const rows = somewhere<expert_id>(1);
  expert_id* const ids = somewhere<expert_id>(2);
  std::int32_t* const adapters = somewhere<std::int32_t>(3);
  expert_id* const out = somewhere<expert_id>(4);
  std::uint64_t* const refused = somewhere<std::uint64_t>(5);
};

#define EXPECT_REFUSED(change)                                 \
  do {                                                         \
    auto a = good();                                           \
    change;                                                    \
    EXPECT_EQ(check(a), error_code::invalid_value) << #change; \
  } while (false)

TEST_F(reroute_launch, accepts_consistent_arrays) { EXPECT_EQ(check(good()), error_code::success); }

TEST_F(reroute_launch, may_be_in_place_and_without_a_counter) {
  auto a = good();
  a.out = ids;
  a.refused = nullptr;
  EXPECT_EQ(check(a), error_code::success);
}

TEST_F(reroute_launch, takes_no_tokens_and_no_adapters_without_arrays) {
  auto a = good();
  a.tokens = 0;
  a.ids = nullptr;
  a.adapter_of_token = nullptr;
  a.out = nullptr;
  a.map = {nullptr, 0, 8};
  EXPECT_EQ(check(a), error_code::success);
}

TEST_F(reroute_launch, accepts_the_largest_shapes_and_refuses_larger_ones) {
  auto largest = good();
  largest.tokens = std::numeric_limits<std::int32_t>::max();
  largest.top_k = 1;
  largest.map.adapters = std::numeric_limits<std::int32_t>::max();
  largest.map.experts = 1;
  EXPECT_EQ(check(largest), error_code::success);
  EXPECT_REFUSED(a.tokens = -1);
  EXPECT_REFUSED(a.top_k = 0);
  EXPECT_REFUSED(a.map.experts = 0);
  EXPECT_REFUSED(a.map.adapters = -1);
  EXPECT_REFUSED((a.tokens = 1 << 20, a.top_k = 1 << 11));
  EXPECT_REFUSED((a.map.adapters = 1 << 20, a.map.experts = 1 << 11));
}

TEST_F(reroute_launch, refuses_absent_and_misaligned_arrays) {
  EXPECT_REFUSED(a.ids = nullptr);
  EXPECT_REFUSED(a.adapter_of_token = nullptr);
  EXPECT_REFUSED(a.out = nullptr);
  EXPECT_REFUSED(a.map.rows = nullptr);
  EXPECT_REFUSED(a.refused =
                     reinterpret_cast<std::uint64_t*>(reinterpret_cast<char*>(a.refused) + 4));
}

TEST_F(reroute_launch, refuses_results_that_overlap_anything_but_the_ids_themselves) {
  EXPECT_REFUSED(a.out = ids + 1);
  EXPECT_REFUSED(a.out = rows);
  EXPECT_REFUSED(a.adapter_of_token = reinterpret_cast<const std::int32_t*>(out + 2));
  EXPECT_REFUSED(a.adapter_of_token = reinterpret_cast<const std::int32_t*>(a.refused) - 2);
}

}  // namespace
}  // namespace hotset::cuda::reroute_kernel_test
