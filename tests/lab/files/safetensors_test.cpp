// SPDX-License-Identifier: Apache-2.0
#include "lab/files/safetensors.hpp"

#include <cstring>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trace_samples.hpp"

namespace safetensors_test {
namespace {
using namespace hotset;
using hotset::lab::safetensors_file;
using ::testing::ElementsAre;
using trace_samples::expect_refused;
using trace_samples::safetensors_bytes;

TEST(safetensors, reads_tensors_in_the_order_of_their_data) {
  const trace_samples::temporary_folder folder;
  const std::string data("\x01\x02\x03\x00\x00\x80\x3f", 7);
  const auto path = folder.write(
      "t", safetensors_bytes(R"({"b":{"dtype":"F32","shape":[1],"data_offsets":[3,7]},)"
                             R"("a":{"dtype":"U8","shape":[3,1],"data_offsets":[0,3]},)"
                             R"("none":{"dtype":"I64","shape":[0,9],"data_offsets":[7,7]},)"
                             R"("__metadata__":{"k":"v"}}   )",
                             data));
  safetensors_file opened(path);
  const safetensors_file file = std::move(opened);
  EXPECT_THAT(file.names(), ElementsAre("a", "b", "none"));
  EXPECT_EQ(file.metadata().at("k"), "v");
  EXPECT_THAT(file.at("a").shape, ElementsAre(3, 1));
  EXPECT_EQ(file.at("a").elements(), 3U);
  EXPECT_EQ(lab::read_unaligned<float>(file.at("b").bytes, 0), 1.0F) << "at an odd address";
  EXPECT_THAT(lab::copy_elements<float>(file.at("b").bytes), ElementsAre(1.0F));
  EXPECT_TRUE(file.at("none").bytes.empty());
  EXPECT_EQ(file.find("c"), nullptr);
  expect_refused([&] { (void)file.at("c"); }, {"tensor 'c'", "missing"});
}

TEST(safetensors, refuses_a_wrong_length_of_the_header) {
  const trace_samples::temporary_folder folder;
  const auto with_length = [&](std::uint64_t length) {
    std::string bytes = safetensors_bytes("{}", "");
    std::memcpy(bytes.data(), &length, 8);
    return folder.write("t", bytes);
  };
  const auto refuse = [](const std::filesystem::path& path,
                         std::initializer_list<std::string_view> parts) {
    expect_refused([&] { safetensors_file file(path); }, parts);
  };
  (void)safetensors_file(with_length(2));
  for (const std::uint64_t length : {std::uint64_t{1} << 63U, ~std::uint64_t{0}, std::uint64_t{3}})
    refuse(with_length(length),
           {"byte 0", "header length " + std::to_string(length), "accepted: 2..2"});
  refuse(with_length(0), {"header length 0"});
  refuse(folder.write("e", ""), {"0 bytes", "8 or more"});
  refuse(folder.write("e", "1234567"), {"7 bytes"});
}

/// Non-empty lines of text.
std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> out;
  for (std::string line; std::getline(in, line);)
    if (!line.empty()) out.push_back(line);
  return out;
}

/// Headers of eight-byte files, and their refusals: "header => part of the message".
class safetensors_headers : public ::testing::TestWithParam<std::string> {};

TEST_P(safetensors_headers, are_refused_in_one_line) {
  const trace_samples::temporary_folder folder;
  const auto arrow = GetParam().find(" => ");
  const auto header = GetParam().substr(0, arrow);
  const auto path = folder.write("t", safetensors_bytes(header, std::string(8, '\0')));
  expect_refused([&] { safetensors_file f(path); }, {path.string(), GetParam().substr(arrow + 4)});
}

INSTANTIATE_TEST_SUITE_P(all, safetensors_headers, ::testing::ValuesIn(lines_of(R"(
[1] => does not begin with '{'
{"a": => ends before its JSON
{} => 8 bytes belong to no tensor
{"a":7} => tensor 'a': its description is 7
{"a":{"dtype":"F32","shape":[2]}} => is missing; accepted: all three
{"a":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}} => dtype "F33" is unknown
{"a":{"dtype":7,"shape":[2],"data_offsets":[0,8]}} => 'dtype' is 7
{"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}} => 'shape' holds -2
{"a":{"dtype":"F32","shape":[2.5],"data_offsets":[0,8]}} => 'shape' holds 2.5
{"a":{"dtype":"F32","shape":[[2]],"data_offsets":[0,8]}} => 'shape' holds
{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,9]}} => has 3 entries
{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,9]}} => are out of range
{"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}} => are out of range
{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}} => accepted: 12, which is shape [3] of F32
{"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}} => a shape whose bytes fit
{"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}} => a shape whose bytes fit
{"a":{"dtype":"U8","shape":[5],"data_offsets":[0,5]},"b":{"dtype":"U8","shape":[5],"data_offsets":[3,8]}} => 'b': overlaps
{"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}} => 'b': leaves a hole
{"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}} => 5 bytes belong to no tensor
{"a":{"dtype":"U8"},"a":{"dtype":"U8"}} => key 'a': is there twice
{"__metadata__":{"k":7}} => the value of 'k' is 7
{"__metadata__":{"k":{"deep":"x"}}} => an object
{"__metadata__":"text"} => __metadata__: is "text")")));

TEST(safetensors, a_header_alone_is_read_where_that_is_asked_for) {
  const trace_samples::temporary_folder folder;
  const std::string header = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                             R"("b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})";
  for (const std::size_t there : {0U, 3U, 4U, 11U, 12U}) {
    const auto path = folder.write("t", safetensors_bytes(header, std::string(there, '\1')));
    const safetensors_file file(path, lab::file_extent::header);
    EXPECT_EQ(file.missing_bytes(), 12 - there);
    EXPECT_EQ(file.at("a").described_bytes, 4U);
    EXPECT_EQ(file.at("a").bytes.size(), there < 4 ? 0U : 4U);
    EXPECT_EQ(file.at("b").described_bytes, 8U);
    EXPECT_EQ(file.at("b").bytes.size(), there < 12 ? 0U : 8U);
    if (there < 12) expect_refused([&] { safetensors_file f(path); }, {"out of range"});
  }
  const auto far = folder.write(
      "t",
      safetensors_bytes(
          R"({"a":{"dtype":"U8","shape":[281474976710657],"data_offsets":[0,281474976710657]}})",
          ""));
  expect_refused([&] { safetensors_file f(far, lab::file_extent::header); }, {"out of range"});
}

}  // namespace
}  // namespace safetensors_test
