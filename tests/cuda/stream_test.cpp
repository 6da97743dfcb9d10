// SPDX-License-Identifier: Apache-2.0
#include "hotset/cuda/stream.hpp"

#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_cuda_runtime.hpp"

namespace hotset::cuda::stream_test {
namespace {

using support::fake_cuda_runtime;

int device_of(runtime& api) {
  int device = -1;
  EXPECT_EQ(api.current_device(device), error_code::success);
  return device;
}

TEST(device_scope, restores_the_device_and_skips_the_current_one) {
  fake_cuda_runtime api;
  api.devices = 2;
  {
    const device_scope scope(api, 1);
    EXPECT_FALSE(scope.what().happened());
    EXPECT_EQ(device_of(api), 1);
  }
  EXPECT_EQ(device_of(api), 0);
  const auto calls = api.calls("cudaSetDevice");
  {
    const device_scope same(api, 0);
    EXPECT_FALSE(same.what().happened());
  }
  EXPECT_EQ(api.calls("cudaSetDevice"), calls);
}

TEST(device_scope, a_missing_device_is_an_error_without_effect) {
  fake_cuda_runtime api;
  {
    const device_scope scope(api, 3);
    EXPECT_EQ(scope.what().code, error_code::invalid_device);
  }
  EXPECT_EQ(device_of(api), 0);
}

TEST(stream, belongs_to_its_device_and_is_released_once) {
  fake_cuda_runtime api;
  api.devices = 2;
  {
    auto made = stream::create(api, 1).value();
    int device = -1;
    EXPECT_EQ(api.current_device(device), error_code::success);
    EXPECT_EQ(device, 0);
    const auto handle = made.handle();
    auto moved = std::move(made);
    EXPECT_EQ(moved.handle(), handle);
    EXPECT_EQ(api.leaks(), 1U);
    const auto lent = stream::borrow(api, handle);
    EXPECT_EQ(lent.handle(), handle);
  }
  EXPECT_EQ(api.leaks(), 0U);
  EXPECT_EQ(api.calls("cudaStreamDestroy"), 1U);
}

TEST(stream, a_refused_stream_gives_a_reason) {
  fake_cuda_runtime api;
  api.fail("cudaStreamCreateWithPriority", 1, error_code::memory_allocation);
  EXPECT_THAT(stream::create(api, 0).error().message,
              testing::HasSubstr("cudaStreamCreateWithPriority: fakeError (2)"));
  EXPECT_THAT(stream::create(api, 7).error().message, testing::HasSubstr("cudaSetDevice"));
}

}  // namespace
}  // namespace hotset::cuda::stream_test
