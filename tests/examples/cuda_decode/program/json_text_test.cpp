// SPDX-License-Identifier: Apache-2.0
#include "cuda_decode/program/json_text.hpp"

#include <cstdint>
#include <limits>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace cuda_decode::json_text_test {
namespace {

TEST(json, is_read_as_it_was_written) {
  json_text text;
  text.begin_object()
      .add("text", "a \"quoted\" back\\slash,\na line and \x01")
      .add("yes", true)
      .add("no", false)
      .add("most", std::numeric_limits<std::uint64_t>::max())
      .add("less", -5)
      .add("real", 0.1)
      .add("none", std::numeric_limits<double>::infinity())
      .begin_array("list")
      .add({}, 1)
      .begin_object()
      .end_object()
      .end_array()
      .begin_array("empty")
      .end_array()
      .add("last", 1)
      .end_object();
  const auto json = nlohmann::json::parse(text.text());
  EXPECT_EQ(json["text"], "a \"quoted\" back\\slash,\na line and \x01");
  EXPECT_EQ(json["yes"], true);
  EXPECT_EQ(json["no"], false);
  EXPECT_EQ(json["most"], std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(json["less"], -5);
  EXPECT_EQ(json["real"], 0.1);
  EXPECT_TRUE(json["none"].is_null());
  EXPECT_EQ(json["list"].size(), 2U);
  EXPECT_TRUE(json["empty"].empty());
  EXPECT_EQ(json["last"], 1);
}

}  // namespace
}  // namespace cuda_decode::json_text_test
