// SPDX-License-Identifier: Apache-2.0
#include "hotset/core/numbers/saved_numbers.hpp"

#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace saved_numbers_test {
namespace {

using namespace hotset;

TEST(saved_numbers, the_lowest_byte_comes_first) {
  std::vector<std::byte> bytes;
  save_number(0x04030201U, bytes);
  EXPECT_EQ(bytes,
            (std::vector<std::byte>{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}}));
}

TEST(saved_numbers, what_was_saved_is_read_wherever_it_stands) {
  const std::vector<std::uint32_t> numbers{
      0, 1, 255, 256, 0x80000000U, std::numeric_limits<std::uint32_t>::max()};
  std::vector<std::byte> bytes{std::byte{7}};  // no number begins at a multiple of its size
  for (const auto n : numbers) save_number(n, bytes);
  for (std::size_t i = 0; i < numbers.size(); ++i)
    EXPECT_EQ(saved_number(bytes, 1 + 4 * i), numbers[i]);
}

}  // namespace
}  // namespace saved_numbers_test
