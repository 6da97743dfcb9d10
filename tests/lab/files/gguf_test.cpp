// SPDX-License-Identifier: Apache-2.0
#include "lab/files/gguf.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gguf_samples.hpp"
#include "trace_samples.hpp"

namespace gguf_test {
namespace {
using namespace hotset;
using hotset::lab::gguf_file;
using ::testing::ElementsAre;
using trace_samples::expect_refused;
namespace gguf = gguf_samples;

class gguf_header : public ::testing::Test {
 protected:
  [[nodiscard]] std::filesystem::path write(std::string_view bytes) const {
    return folder_.write("t.gguf", bytes);
  }
  [[nodiscard]] gguf_file open(const gguf::file& file) const {
    return gguf_file(write(file.bytes()));
  }
  void refuse(std::string_view bytes, std::initializer_list<std::string_view> parts) const {
    const auto path = write(bytes);
    expect_refused([&] { gguf_file file(path); }, parts);
  }
  void refuse(const gguf::file& file, std::initializer_list<std::string_view> parts) const {
    refuse(file.bytes(), parts);
  }

  trace_samples::temporary_folder folder_;
};

TEST_F(gguf_header, says_what_is_in_the_file) {
  gguf::file made;
  made.word("general.architecture", "qwen3moe")
      .number("n", 7)
      .flag("yes", true)
      .numbers("list", {3, 0, -1})
      .flags("flags", {true, false})
      .words("words", {"a", "bc"});
  made.tensor("a.weight", {256, 3}, gguf::q4_k).tensor("b", {5}, gguf::f32);
  auto opened = open(made);
  const gguf_file file = std::move(opened);
  EXPECT_EQ(file.version(), 3U);
  EXPECT_EQ(file.find("general.architecture")->text(), "qwen3moe");
  EXPECT_EQ(file.find("n")->natural(), 7U);
  EXPECT_EQ(file.find("n")->text(), std::nullopt);
  EXPECT_EQ(file.find("yes")->natural(), 1U);
  const auto* const list = file.find("list");
  EXPECT_TRUE(list->is_array);
  EXPECT_EQ(list->count, 3U);
  EXPECT_EQ(list->natural(0), 3U);
  EXPECT_EQ(list->natural(2), std::nullopt);
  EXPECT_EQ(file.find("flags")->natural(0), 1U);
  EXPECT_EQ(file.find("words")->count, 2U);
  EXPECT_EQ(file.find("words")->text(), std::nullopt) << "not one string";
  EXPECT_EQ(file.find("absent"), nullptr);
  ASSERT_EQ(file.tensors().size(), 2U);
  EXPECT_EQ(file.tensors()[0].name, "a.weight");
  EXPECT_EQ(file.tensors()[0].type, "Q4_K");
  EXPECT_EQ(file.tensors()[0].bytes, 3U * 144);
  EXPECT_THAT(file.tensors()[0].dimensions, ElementsAre(256, 3));
  EXPECT_EQ(file.tensors()[1].bytes, 20U);
}

TEST_F(gguf_header, every_integer_type_is_a_natural_number) {
  const auto natural = [&](std::uint32_t type, const std::string& bytes) {
    return open(gguf::file().entry("k", type, bytes)).find("k")->natural();
  };
  EXPECT_EQ(natural(0, gguf::raw<std::uint8_t>(200)), 200U);
  EXPECT_EQ(natural(1, gguf::raw<std::int8_t>(100)), 100U);
  EXPECT_EQ(natural(1, gguf::raw<std::int8_t>(-2)), std::nullopt);
  EXPECT_EQ(natural(2, gguf::raw<std::uint16_t>(60000)), 60000U);
  EXPECT_EQ(natural(3, gguf::raw<std::int16_t>(30000)), 30000U);
  EXPECT_EQ(natural(5, gguf::raw<std::int32_t>(70000)), 70000U);
  EXPECT_EQ(natural(6, gguf::raw(1.5F)), std::nullopt);
  EXPECT_EQ(natural(10, gguf::raw<std::uint64_t>(1ULL << 40U)), 1ULL << 40U);
  EXPECT_EQ(natural(11, gguf::raw<std::int64_t>(1LL << 40U)), 1ULL << 40U);
  EXPECT_EQ(natural(11, gguf::raw<std::int64_t>(-1)), std::nullopt);
  EXPECT_EQ(natural(12, gguf::raw(3.0)), std::nullopt);
}

// The bits of an element, as gguf-py has them.
TEST_F(gguf_header, knows_the_size_of_every_type) {
  struct fact {
    std::uint32_t id;
    const char* name;
    std::uint64_t block, bytes;
  };
  for (const auto& [id, name, block, bytes] : std::vector<fact>{
           {0, "F32", 1, 4},         {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},
           {3, "Q4_1", 32, 20},      {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},
           {8, "Q8_0", 32, 34},      {9, "Q8_1", 32, 40},      {10, "Q2_K", 256, 84},
           {11, "Q3_K", 256, 110},   {12, "Q4_K", 256, 144},   {13, "Q5_K", 256, 176},
           {14, "Q6_K", 256, 210},   {15, "Q8_K", 256, 292},   {16, "IQ2_XXS", 256, 66},
           {17, "IQ2_XS", 256, 74},  {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50},
           {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110},  {22, "IQ2_S", 256, 82},
           {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},         {25, "I16", 1, 2},
           {26, "I32", 1, 4},        {27, "I64", 1, 8},        {28, "F64", 1, 8},
           {29, "IQ1_M", 256, 56},   {30, "BF16", 1, 2},       {34, "TQ1_0", 256, 54},
           {35, "TQ2_0", 256, 66},   {39, "MXFP4", 32, 17},    {40, "NVFP4", 64, 36},
           {41, "Q1_0", 128, 18},    {42, "Q2_0", 64, 18}}) {
    const auto file = open(gguf::file().tensor_at("t", {block * 2, 3}, id, 0, bytes * 6));
    EXPECT_EQ(file.tensors().front().bytes, bytes * 6) << name;
    EXPECT_EQ(file.tensors().front().type, name);
    if (block > 1)
      refuse(gguf::file().tensor_at("t", {block + 1, 3}, id, 0, bytes * 9),
             {"tensor 't'", "the first a multiple of " + std::to_string(block)});
  }
  for (const std::uint32_t id : {4U, 5U, 31U, 32U, 33U, 36U, 37U, 38U, 43U, 0xffffffffU})
    refuse(gguf::file().tensor_at("t", {256}, id, 0, 4096),
           {"tensor 't'", "type " + std::to_string(id) + " is unknown"});
}

TEST_F(gguf_header, every_shorter_file_is_refused) {
  auto made = gguf::small_model();
  made.flags("some.flags", {true, false}).flag("last", true);
  const auto whole = made.bytes();
  (void)gguf_file(write(whole));
  const auto header = made.header().size();
  for (std::size_t size = 0; size < whole.size(); size += size < header + 64 ? 1 : 4999)
    refuse(std::string_view(whole).substr(0, size), {"t.gguf"});
  refuse(std::string_view(whole).substr(0, whole.size() - 1), {"pass the file's end"});
}

TEST_F(gguf_header, begins_with_its_name_and_a_known_version) {
  gguf::file made;
  for (made.version = 0; made.version < 6; ++made.version) {
    if (made.version == 2 || made.version == 3)
      EXPECT_EQ(open(made).version(), made.version);
    else
      refuse(made, {"byte 4: version " + std::to_string(made.version), "accepted: 2 or 3"});
  }
  made.version = 0x03000000;
  refuse(made, {"byte 4", "big-endian"});
  refuse("GGML" + made.bytes().substr(4), {"byte 0", "does not begin with 'GGUF'"});
  refuse("", {"does not begin with 'GGUF'"});
  expect_refused([&] { gguf_file file(folder_.path()); }, {"is a folder"});
  expect_refused([&] { gguf_file file(folder_.path() / "absent"); }, {"cannot be opened"});
}

TEST_F(gguf_header, huge_counts_cost_nothing) {
  const auto made = gguf::small_model();
  const auto huge = ~std::uint64_t{0};
  refuse(made.header(huge, 0), {"byte 8: the tensor count is 18446744073709551615"});
  refuse(made.header(1, huge), {"byte 16: the metadata count is 18446744073709551615"});
  refuse(made.header(huge / 24, huge / 24), {"the tensor count"});
  refuse(made.header(0, 200), {"byte"});
  const auto with_value = [](std::uint32_t type, const std::string& value) {
    return gguf::file().entry("k", type, value);
  };
  refuse(with_value(8, gguf::raw(huge)), {"a string's length is 18446744073709551615"});
  for (const std::uint32_t element : {0U, 4U, 12U, 8U, 9U})
    refuse(with_value(9, gguf::raw(element) + gguf::raw(huge / 2)), {"an array's length is"});
  refuse("GGUF" + gguf::raw(3U) + gguf::raw(std::uint64_t{0}) + gguf::raw(std::uint64_t{1}) +
             gguf::raw(huge) + std::string(5, 'k'),
         {"byte 24: a key's length is 18446744073709551615", "0..5"});
}

TEST_F(gguf_header, arrays_in_arrays_are_passed_over_down_to_a_depth) {
  const auto nested = [](int depth) {
    std::string value;
    for (int i = 0; i < depth; ++i) value += gguf::raw(9U) + gguf::raw(std::uint64_t{1});
    value += gguf::raw(8U) + gguf::raw(std::uint64_t{2}) + gguf::text("x") + gguf::text("");
    return gguf::file().entry("deep", 9, value).number("after", 5);
  };
  for (int depth = 0; depth < 4; ++depth)
    EXPECT_EQ(open(nested(depth)).find("after")->natural(), 5U) << depth;
  refuse(nested(4), {"key 'deep'", "too deep"});
  refuse(nested(100000), {"key 'deep'", "too deep"});
}

TEST_F(gguf_header, bad_keys_and_types_are_refused) {
  refuse(gguf::file().number("k", 1).number("k", 2), {"key 'k'", "appears twice"});
  refuse(gguf::file().number("", 1), {"byte 24", "a key of 0 bytes"});
  refuse(gguf::file().number(std::string(65536, 'k'), 1), {"a key of 65536 bytes", "1..65535"});
  refuse(gguf::file().entry("k", 13, "        "), {"key 'k'", "value type 13 is unknown", "0..12"});
  refuse(gguf::file().entry("k", 9, gguf::raw(77U) + gguf::raw(std::uint64_t{0})),
         {"key 'k'", "value type 77 is unknown"});
}

TEST_F(gguf_header, alignment_is_a_multiple_of_eight) {
  gguf::file made;
  made.alignment = 64;
  made.number("general.alignment", 64).tensor("a", {1}, gguf::f32).tensor("b", {1}, gguf::f32);
  EXPECT_EQ(open(made).tensors().size(), 2U);
  for (const std::uint32_t bad : {0U, 4U, 12U, 0x80000000U})
    refuse(gguf::file().number("general.alignment", bad),
           {"key 'general.alignment'", "is " + std::to_string(bad), "a multiple of 8"});
  refuse(gguf::file().word("general.alignment", "32"), {"is no integer"});
  refuse(gguf::file().numbers("general.alignment", {32}), {"is no integer"});
}

TEST_F(gguf_header, tensors_that_cannot_be_are_refused) {
  const auto big = std::uint64_t{1} << 40U;
  const auto a = [](std::vector<std::uint64_t> extents, std::uint64_t offset = 0) {
    return gguf::file().tensor_at("a", std::move(extents), gguf::f32, offset, 4);
  };
  refuse(gguf::file().tensor("", {1}, gguf::f32), {"tensor ''", "has no name"});
  refuse(gguf::file().tensor("a", {1}, gguf::f32).tensor("a", {1}, gguf::f32),
         {"tensor 'a'", "appears twice"});
  refuse(a({}), {"tensor 'a'", "0 dimensions", "1..4"});
  refuse(a({1, 1, 1, 1, 1}), {"5 dimensions"});
  refuse(a({4, 0}), {"extents [4, 0] of F32"});
  refuse(a({big, big}), {"extents [1099511627776, 1099511627776]", "whose bytes fit a file"});
  refuse(a({1ULL << 62U}), {"fit a file"});
  refuse(a({1}, 8), {"tensor 'a'", "offset 8", "a multiple of 32"});
  refuse(a({2}), {"pass the file's end"});
  refuse(gguf::file().tensor_at("a", {1}, gguf::f32, 0ULL - 32, 0).header(),
         {"tensor 'a'", "pass the file's end"});
  for (const std::uint64_t begin : {32U, 0U})
    refuse(gguf::file()
               .tensor("a", {9}, gguf::f32)
               .tensor_at("b", {begin == 0 ? 9U : 1U}, gguf::f32, begin, 40),
           {"overlaps"});
}

}  // namespace
}  // namespace gguf_test
