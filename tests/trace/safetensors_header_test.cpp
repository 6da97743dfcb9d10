// SPDX-License-Identifier: Apache-2.0
#include "hotset/trace/safetensors_header.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include <gtest/gtest.h>

namespace safetensors_header_test {
namespace {
using namespace hotset;

std::string json_of(const std::string& bytes) {
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  EXPECT_EQ(length, bytes.size() - 8);
  EXPECT_EQ(bytes.size() % 64, 0U);
  return bytes.substr(8, bytes.find_last_not_of(' ') + 1 - 8);
}

TEST(safetensors_header, arrays_lie_one_behind_the_other_in_the_order_in_which_they_were_added) {
  safetensors_header header;
  header.add("b", "F32", std::array<std::uint64_t, 2>{2, 3}, 4);
  header.add("a", "U8", std::array<std::uint64_t, 1>{5}, 1);
  header.add("none", "F16", std::array<std::uint64_t, 2>{0, 7}, 2);
  header.add("one", "F16", std::span<const std::uint64_t>(), 2);
  EXPECT_EQ(json_of(header.bytes({{"k", "v"}, {"j", "\"\n"}})),
            R"({"__metadata__":{"j":"\"\u000a","k":"v"},)"
            R"("b":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
            R"("a":{"dtype":"U8","shape":[5],"data_offsets":[24,29]},)"
            R"("none":{"dtype":"F16","shape":[0,7],"data_offsets":[29,29]},)"
            R"("one":{"dtype":"F16","shape":[],"data_offsets":[29,31]}})");
}

TEST(safetensors_header, a_name_is_whatever_json_can_say) {
  safetensors_header header;
  header.add("a\"b\\\xff", "U8", std::array<std::uint64_t, 1>{1}, 1);
  EXPECT_EQ(json_of(header.bytes({})),
            R"({"__metadata__":{},"a\"b\\?":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})");
}

TEST(safetensors_header, the_data_begins_at_a_multiple_of_64_whatever_the_names_length) {
  for (std::size_t n = 1; n <= 130; ++n) {
    safetensors_header header;
    header.add(std::string(n, 'x'), "U8", std::array<std::uint64_t, 1>{1}, 1);
    const auto json = json_of(header.bytes({}));
    EXPECT_EQ(json.size(), n + json_of(safetensors_header().bytes({})).size() + 51);
  }
}

}  // namespace
}  // namespace safetensors_header_test
