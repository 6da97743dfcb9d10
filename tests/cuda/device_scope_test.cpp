// SPDX-License-Identifier: Apache-2.0
#include "hotset/cuda/device_scope.hpp"

#include <gtest/gtest.h>

#include "fake_cuda_runtime.hpp"

namespace hotset::cuda::device_scope_test {
namespace {

using support::fake_cuda_runtime;

int device_of(runtime& api) {
  int device = -1;
  EXPECT_EQ(api.current_device(device), error_code::success);
  return device;
}

TEST(device_scope, gives_the_device_back_and_changes_nothing_where_it_is_current) {
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

TEST(device_scope, a_device_that_is_not_there_is_told_and_nothing_changes) {
  fake_cuda_runtime api;
  {
    const device_scope scope(api, 3);
    EXPECT_EQ(scope.what().code, error_code::invalid_device);
  }
  EXPECT_EQ(device_of(api), 0);
}

}  // namespace
}  // namespace hotset::cuda::device_scope_test
