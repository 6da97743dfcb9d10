// SPDX-License-Identifier: Apache-2.0
#include "hotset/admission/always.hpp"

#include <gtest/gtest.h>

#include "admission_samples.hpp"

namespace hotset::always_test {
namespace {

using namespace admission_samples;

TEST(always, admits_all) {
  static_assert(always::traits.admits_all);
  EXPECT_EQ(ask(always(layout), {use_of(1, 0), use_of(2, 0)}), (verdict{1, 1}));
  EXPECT_EQ(ask(always(layout), {}), verdict{});
}

}  // namespace
}  // namespace hotset::always_test
