// SPDX-License-Identifier: Apache-2.0
#include "lab/files/npy.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "npy_samples.hpp"
#include "trace_samples.hpp"

namespace hotset::npy_test {
namespace {

using lab::floats_of;
using lab::integers_of;
using lab::parse_npy;
using npy_samples::bytes_of;
using npy_samples::npy;
using npy_samples::with_header;
using testing::ElementsAre;
using trace_samples::expect_refused;

template <class Number>
std::vector<std::int64_t> integers(std::string_view type, const std::vector<Number>& numbers) {
  const auto file = npy(type, "(" + std::to_string(numbers.size()) + ",)", bytes_of(numbers));
  return integers_of(parse_npy(file, "a"));
}
template <class Number>
std::vector<float> floats(std::string_view type, const std::vector<Number>& numbers) {
  const auto file = npy(type, "(" + std::to_string(numbers.size()) + ",)", bytes_of(numbers));
  return floats_of(parse_npy(file, "a"));
}

TEST(npy, reads_integers_of_every_width) {
  EXPECT_THAT(integers<std::int8_t>("|i1", {-1, 7}), ElementsAre(-1, 7));
  EXPECT_THAT(integers<std::uint8_t>("|u1", {255, 7}), ElementsAre(255, 7));
  EXPECT_THAT(integers<std::int16_t>("<i2", {-300}), ElementsAre(-300));
  EXPECT_THAT(integers<std::uint32_t>("<u4", {4000000000U}), ElementsAre(4000000000));
  EXPECT_THAT(integers<std::uint64_t>("<u8", {~std::uint64_t{0}, 5}), ElementsAre(-1, 5));
  EXPECT_THAT(integers<std::int64_t>("=i8", {-9}), ElementsAre(-9));
}

TEST(npy, reads_real_numbers_of_every_width) {
  EXPECT_THAT(floats<std::uint16_t>("<f2", {0x3c00, 0xb800}), ElementsAre(1.0F, -0.5F));
  EXPECT_THAT(floats<float>("<f4", {0.25F}), ElementsAre(0.25F));
  EXPECT_THAT(floats<double>("<f8", {0.1}), ElementsAre(0.1F));
  EXPECT_THAT(floats<std::int32_t>("<i4", {-3}), ElementsAre(-3.0F));
}

TEST(npy, the_first_axis_may_be_the_fastest) {
  // [[1, 2, 3], [4, 5, 6]] column by column
  const auto file = npy("|u1", "(2, 3)", bytes_of<std::uint8_t>({1, 4, 2, 5, 3, 6}), true);
  EXPECT_THAT(integers_of(parse_npy(file, "a")), ElementsAre(1, 2, 3, 4, 5, 6));
  const auto deep = npy("|u1", "(2, 1, 2)", bytes_of<std::uint8_t>({1, 3, 2, 4}), true);
  EXPECT_THAT(integers_of(parse_npy(deep, "a")), ElementsAre(1, 2, 3, 4));
}

TEST(npy, has_a_name_a_shape_and_a_description) {
  const auto array =
      parse_npy(npy("<u2", "(1, 3)", bytes_of<std::uint16_t>({1, 2, 3})), "d/ids.npy");
  EXPECT_EQ(array.name, "ids");
  EXPECT_THAT(array.shape, ElementsAre(1, 3));
  EXPECT_EQ(array.description(), "uint16 of shape [1, 3]");
  EXPECT_TRUE(parse_npy(npy("<f4", "()", bytes_of<float>({1})), "a").shape.empty());
  EXPECT_EQ(parse_npy(npy("<f4", "(0, 3)", ""), "a").size(), 0U);
}

TEST(npy, refuses_what_is_no_array_of_numbers) {
  const auto refused = [](const std::string& bytes, std::string_view said) {
    expect_refused([&] { (void)parse_npy(bytes, "a.npy"); }, {"a.npy", said});
  };
  const auto numbers = bytes_of<std::int32_t>({1, 2});
  refused("NUMPY", "no array");
  refused(npy("|O", "(2,)", numbers), "type '|O'");
  refused(npy("<f1", "(2,)", "ab"), "type '<f1'");
  refused(npy("<c8", "(1,)", numbers), "type '<c8'");
  refused(npy(">i4", "(2,)", numbers), "the lowest byte first");
  refused(npy("<U2", "(1,)", numbers), "type '<U2'");
  refused(with_header("{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (2,)}", numbers),
          "several fields");
  refused(with_header("{'descr': '<i4', 'shape': (2,)}", numbers), "has no 'fortran_order'");
  refused(with_header("{'descr': '<i4', 'fortran_order': 1}", numbers), "order of axes");
  refused(with_header("{'descr': '<i4', 'fortran_order': True, 'shape': (x,)}", numbers),
          "whole numbers");
  refused(with_header("{'descr': '<i4', 'fortran_order': True, 'shape': (2", numbers),
          "whole numbers");
  refused(with_header("{'descr", numbers), "has no 'descr'");
  refused(with_header("{'descr': '<i4", numbers), "of type '<i4");
  refused(npy("<i4", "(3,)", numbers), "8 bytes behind the header of int32 of shape [3]");
  refused(npy("<i4", "(1,)", numbers), "8 bytes");
  refused(npy("<i4", "(2,)", numbers.substr(0, 7)), "7 bytes");
  refused(npy("<i4", "(9223372036854775807, 9223372036854775807)", numbers), "8 bytes");
  auto newer = npy("<i4", "(2,)", numbers);
  newer[6] = '\4';
  refused(newer, "version 4");
  refused(npy("<i4", "(2,)", numbers).substr(0, 40), "ends inside its header");
}

}  // namespace
}  // namespace hotset::npy_test
