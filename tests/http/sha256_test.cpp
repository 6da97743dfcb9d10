// SPDX-License-Identifier: Apache-2.0
#include "hotset/http/sha256.hpp"

#include <string>

#include <gtest/gtest.h>

namespace hotset::sha256_test {
namespace {

// FIPS 180-2, appendix B.1.
constexpr auto of_abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

TEST(sha256, is_that_of_the_standard) {
  const std::string abc = "abc";
  const auto wanted = read_sha256(of_abc).value();
  EXPECT_TRUE(has_sha256(std::as_bytes(std::span(abc)), wanted));
  EXPECT_FALSE(has_sha256(std::as_bytes(std::span(abc).first(2)), wanted));
  auto other = wanted;
  other[31] ^= std::byte{1};
  EXPECT_FALSE(has_sha256(std::as_bytes(std::span(abc)), other));
}

TEST(sha256, of_other_digits_is_refused) {
  const std::string digits = of_abc;
  EXPECT_EQ(read_sha256(digits.substr(1)).error().message,
            "a SHA-256 of 63 characters, accepted: 64 hexadecimal digits");
  for (const auto* const bad : {"g0", "0g", "0x", "-1", " 1", "1 "})
    EXPECT_EQ(read_sha256(bad + digits.substr(2)).error().message,
              std::string("a SHA-256 with '") + bad + "', accepted: 64 hexadecimal digits");
}

}  // namespace
}  // namespace hotset::sha256_test
