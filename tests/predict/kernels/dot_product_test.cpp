// SPDX-License-Identifier: Apache-2.0
#include "hotset/predict/kernels/dot_product.hpp"

#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

#include "random_source.hpp"

namespace hotset::dot_product_test {
namespace {

TEST(dot_product, sums_whole_groups_and_the_rest) {
  support::random_source random(4);
  for (std::size_t n = 0; n < 40; ++n) {
    std::vector<float> a(n), b(n);
    double want = 0;
    for (std::size_t i = 0; i < n; ++i) {
      a[i] = static_cast<float>(random.below(64)) - 32.0F;  // small whole numbers: sums are exact
      b[i] = static_cast<float>(random.below(64)) - 32.0F;
      want += double{a[i]} * double{b[i]};
    }
    EXPECT_EQ(detail::dot(a.data(), b.data(), n), want) << n;
  }
}

TEST(dot_product, adds_up_in_its_written_order) {
  // Lane 0 meets lane 4 before lane 1 does: 1e8 is gone before the ones come.
  const std::vector<float> a{1e8F, 1, 0, 0, -1e8F, 1, 0, 0};
  const std::vector<float> ones(8, 1.0F);
  EXPECT_EQ(detail::dot(a.data(), ones.data(), 8), 2.0F);
  EXPECT_EQ(detail::sum(a.data(), 8), 2.0F);
}

}  // namespace
}  // namespace hotset::dot_product_test
