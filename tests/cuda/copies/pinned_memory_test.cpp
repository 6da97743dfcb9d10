// SPDX-License-Identifier: Apache-2.0
#include "hotset/cuda/copies/pinned_memory.hpp"

#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_cuda_runtime.hpp"

namespace hotset::cuda::pinned_memory_test {
namespace {

using support::fake_cuda_runtime;
using testing::HasSubstr;

// Hazard 15: page-locked memory rounded up to a power of two takes up to twice the RAM.
TEST(pinned_buffer, page_locks_exactly_the_requested_bytes) {
  fake_cuda_runtime api;
  std::vector<std::byte> mapped(3 * 4096 + 17);
  {
    auto made = pinned_buffer::allocate(api, 5'000'001).value();
    EXPECT_EQ(made.bytes().size(), 5'000'001U);
    EXPECT_EQ(api.pinned_bytes(), 5'000'001U);
    auto locked = pinned_buffer::lock(api, mapped).value();
    EXPECT_EQ(locked.bytes().data(), mapped.data());
    EXPECT_EQ(api.pinned_bytes(), 5'000'001U + mapped.size());
    const auto moved = std::move(made);
    EXPECT_EQ(moved.bytes().size(), 5'000'001U);
  }
  EXPECT_EQ(api.leaks(), 0U);
  EXPECT_EQ(api.calls("cudaFreeHost"), 1U);
  EXPECT_EQ(api.calls("cudaHostUnregister"), 1U);
  EXPECT_THAT(api.violations(), testing::IsEmpty());
}

TEST(pinned_buffer, a_refusal_names_the_bytes_the_call_and_the_reason) {
  fake_cuda_runtime api;
  std::vector<std::byte> memory(100);
  api.fail("cudaHostAlloc", 1, error_code::memory_allocation);
  EXPECT_EQ(pinned_buffer::allocate(api, 77).error().message,
            "cannot page-lock 77 bytes: cudaHostAlloc: fakeError (2): as told");
  const auto locked = pinned_buffer::lock(api, memory).value();
  EXPECT_THAT(pinned_buffer::lock(api, std::span(memory).subspan(10)).error().message,
              HasSubstr("cannot page-lock 90 bytes: cudaHostRegister: fakeError (712)"));
  EXPECT_THAT(pinned_buffer::allocate(api, 0).error().message, HasSubstr("accepted: 1 or more"));
  EXPECT_THAT(pinned_buffer::lock(api, {}).error().message, HasSubstr("accepted: 1 or more"));
}

// Hazard 15: exceeding the stated budget is an error.
TEST(pinned_memory, never_page_locks_more_than_its_budget) {
  fake_cuda_runtime api;
  std::vector<std::byte> mapped(600);
  pinned_memory pages(api, 1000);
  ASSERT_FALSE(pages.lock(mapped));
  EXPECT_EQ(pages.bytes(), 600U);
  EXPECT_EQ(
      pages.allocate(401).error().message,
      "cannot page-lock 401 bytes: 600 of a budget of 1000 are in use, accepted: at most 400");
  EXPECT_EQ(pages.bytes(), 600U);
  EXPECT_EQ(pages.allocate(400).value().size(), 400U);
  EXPECT_THAT(pages.lock(mapped)->message, HasSubstr("accepted: at most 0"));
  EXPECT_EQ(api.pinned_bytes(), 1000U);
}

TEST(pinned_memory, a_refusal_of_the_runtime_costs_no_budget) {
  fake_cuda_runtime api;
  pinned_memory pages(api, 1000);
  api.fail("cudaHostAlloc", 1, error_code::memory_allocation);
  EXPECT_FALSE(pages.allocate(500).has_value());
  EXPECT_EQ(pages.bytes(), 0U);
  EXPECT_TRUE(pages.allocate(1000).has_value());
}

TEST(pinned_memory, contains_pointers_inside_its_ranges) {
  fake_cuda_runtime api;
  std::vector<std::byte> memory(300);
  const std::span all(memory);
  pinned_memory pages(api, 1000);
  EXPECT_FALSE(pages.holds(all));
  ASSERT_FALSE(pages.lock(all.subspan(200, 50)));
  ASSERT_FALSE(pages.lock(all.subspan(0, 100)));
  EXPECT_TRUE(pages.holds(all.subspan(0, 100)));
  EXPECT_TRUE(pages.holds(all.subspan(99, 1)));
  EXPECT_TRUE(pages.holds(all.subspan(200, 50)));
  EXPECT_FALSE(pages.holds(all.subspan(99, 2)));
  EXPECT_FALSE(pages.holds(all.subspan(100, 50)));
  EXPECT_FALSE(pages.holds(all.subspan(150, 60)));
  EXPECT_FALSE(pages.holds(all.subspan(249, 2)));
}

TEST(pinned_memory, gives_everything_back) {
  fake_cuda_runtime api;
  std::vector<std::byte> mapped(64);
  {
    pinned_memory pages(api, 1000);
    ASSERT_FALSE(pages.lock(mapped, true));
    ASSERT_TRUE(pages.allocate(10).has_value());
  }
  EXPECT_EQ(api.leaks(), 0U);
}

}  // namespace
}  // namespace hotset::cuda::pinned_memory_test
