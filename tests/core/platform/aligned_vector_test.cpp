// SPDX-License-Identifier: Apache-2.0
#include "hotset/core/platform/aligned_vector.hpp"

#include <cstddef>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hotset::aligned_vector_test {
namespace {

template <class T>
bool is_aligned(const aligned_vector<T>& values) {
  return reinterpret_cast<std::uintptr_t>(values.data()) % 64 == 0;
}

TEST(aligned_vector, begins_at_a_multiple_of_64_bytes_whatever_its_size) {
  for (std::size_t size = 1; size < 200; ++size) {
    const aligned_vector<std::byte> bytes(size);
    const aligned_vector<float> floats(size, 1.0F);
    EXPECT_TRUE(is_aligned(bytes) && is_aligned(floats)) << size;
    EXPECT_THAT(bytes, testing::Each(std::byte{0}));
  }
}

TEST(aligned_vector, grows_and_moves_as_a_vector_does) {
  aligned_vector<float> grown;
  for (int i = 0; i < 100; ++i) grown.push_back(static_cast<float>(i));
  EXPECT_TRUE(is_aligned(grown));
  const auto* const at = grown.data();
  const auto moved = std::move(grown);
  EXPECT_EQ(moved.data(), at);
  EXPECT_EQ(moved[99], 99.0F);
}

}  // namespace
}  // namespace hotset::aligned_vector_test
