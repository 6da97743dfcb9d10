// SPDX-License-Identifier: Apache-2.0
#include "lab/files/json_object.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trace_samples.hpp"

namespace hotset::json_object_test {
namespace {

using lab::parse_json_object;
using trace_samples::expect_refused;

nlohmann::json parsed(std::string_view text) {
  return parse_json_object(text, "a.json", "objects");
}
void refused(std::string_view text, std::initializer_list<std::string_view> parts) {
  expect_refused([&] { (void)parsed(text); }, parts);
}

TEST(json_object, numbers_that_python_writes_become_their_names) {
  const auto json = parsed(R"({"a": NaN, "b": [-Infinity, Infinity, 1.5], "c": {"d": NaN}})");
  EXPECT_EQ(json, nlohmann::json::parse(
                      R"({"a": "NaN", "b": ["-Infinity", "Infinity", 1.5], "c": {"d": "NaN"}})"));
}

TEST(json_object, strings_keep_what_looks_like_such_numbers) {
  const std::string text = R"({"NaN": "Infinity", "b\"NaN": "\\", "c": "x NaN -Infinity"})";
  EXPECT_EQ(parsed(text), nlohmann::json::parse(text));
  EXPECT_EQ(parsed(R"({"a": "\\", "b": NaN})"),
            nlohmann::json::parse(R"({"a": "\\", "b": "NaN"})"));
}

TEST(json_object, faults_behind_such_numbers_are_at_the_bytes_of_the_file) {
  refused(R"({"a": NaN, "b": Infinity, ?})", {"a.json: byte 27: is not JSON here"});
  refused(R"({"a": NaNcy})", {"a.json: byte 10: is not JSON here"});
  refused(R"({"a": NaN, )", {"a.json: ends before its JSON does"});
  refused("NaN", {"a.json: is no JSON object"});
}

TEST(json_object, a_fault_is_told_with_its_place) {
  refused("", {"a.json: ends before its JSON does"});
  refused("{\"a\": 1,}", {"a.json: byte 9: is not JSON here"});
  refused("{\"a\": \"\xff\"}", {"a.json: byte 8: is not JSON here"});
  refused("[1]", {"a.json: is no JSON object"});
  refused(R"({"a": 1e999})", {"a.json: holds a number that no double can"});
  const std::string_view whole = R"({"a": [1.5, "b", {"c": null}], "d": true})";
  for (std::size_t size = 0; size < whole.size(); ++size)
    refused(whole.substr(0, size), {"a.json: ends before its JSON does"});
}

TEST(json_object, values_nest_32_deep) {
  const auto arrays = [](std::size_t depth) {
    return R"({"a":)" + std::string(depth, '[') + std::string(depth, ']') + "}";
  };
  EXPECT_EQ(parsed(arrays(31)).size(), 1U);
  std::string objects;
  for (int i = 0; i < 1'000'000; ++i) objects += R"({"a":)";
  for (const auto& text : {arrays(33), arrays(1'000'000), objects})
    refused(text, {"a.json: nests values more than 32 deep"});
}

TEST(json_object, a_key_twice_is_refused_at_any_depth) {
  refused(R"({"a": 1, "a": 1})", {"a.json: key 'a': is there twice; accepted: each key once"});
  refused(R"({"a": [{"b": 1}, {"c": {"b": 1, "b": 2}}]})", {"key 'b': is there twice"});
  EXPECT_EQ(parsed(R"({"a": {"a": 1}, "b": {"a": 1}})")["b"]["a"], 1);
}

TEST(json_object, the_largest_text_may_be_set) {
  expect_refused([] { (void)parse_json_object("{}  ", "a.json", "objects", 3); },
                 {"a.json: has 4 bytes; accepted: objects of up to 3"});
  EXPECT_TRUE(parse_json_object("{} ", "a.json", "objects", 3).empty());
}

}  // namespace
}  // namespace hotset::json_object_test
