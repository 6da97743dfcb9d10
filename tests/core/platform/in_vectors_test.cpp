// SPDX-License-Identifier: Apache-2.0
#include "hotset/core/platform/in_vectors.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

#include <gtest/gtest.h>

namespace hotset::in_vectors_test {
namespace {

TEST(in_vectors, runs_a_loop_once_and_alike_at_every_level) {
  for (const auto level : {vector_level::scalar, best_vector_level()}) {
    std::array<std::int32_t, 37> values{};
    detail::in_vectors(level, [&] {
      for (std::size_t i = 0; i < values.size(); ++i) values[i] += static_cast<std::int32_t>(i) * 3;
    });
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_EQ(values[i], static_cast<std::int32_t>(i) * 3);
  }
}

}  // namespace
}  // namespace hotset::in_vectors_test
