// SPDX-License-Identifier: Apache-2.0
#include "hotset/cuda/copies/pinned_buffer.hpp"

#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_cuda_runtime.hpp"

namespace hotset::cuda::pinned_buffer_test {
namespace {

using support::fake_cuda_runtime;
using testing::HasSubstr;

// Hazard 15: page-locked memory that is rounded up to a power of two takes up to twice the RAM.
TEST(pinned_buffer, page_locks_exactly_what_was_asked_for) {
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

}  // namespace
}  // namespace hotset::cuda::pinned_buffer_test
