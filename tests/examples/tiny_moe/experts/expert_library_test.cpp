// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/experts/expert_library.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/errors.hpp"
#include "paging_samples.hpp"
#include "tiny_moe/model/quantised.hpp"
#include "trace_samples.hpp"

namespace expert_library_test {
namespace {

using namespace hotset::literals;
using namespace paging_samples;
using hotset::each;
using hotset::precision_id;
using testing::ElementsAre;

const expert_library& all_widths() {
  static const expert_library made(weights(), "16:8:4:2");
  return made;
}

bool same(hotset::tensor_bytes left, hotset::tensor_bytes right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end());
}

TEST(parse_precisions, falling_bits) {
  EXPECT_THAT(parse_precisions("16:8:4:2"), ElementsAre(16, 8, 4, 2));
  EXPECT_THAT(parse_precisions("8:2"), ElementsAre(8, 2));
  EXPECT_THAT(parse_precisions("4"), ElementsAre(4));
}

TEST(parse_precisions, an_invalid_ladder_is_refused) {
  for (const std::string bad : {"", ":", "8:", ":8", "8:3", "32:16", "4:8", "8:8", "0", "-8", "8;4",
                                "8 :4", "8::4", "eight", "8x", "99999999999"}) {
    EXPECT_THAT(
        [&] { (void)parse_precisions(bad); },
        testing::ThrowsMessage<hotset::lab::usage_error>(
            "precision '" + bad + "', accepted: falling bits of 16, 8, 4, 2 such as 16:8:4"));
    EXPECT_THROW(expert_library(weights(), bad), hotset::lab::usage_error);
  }
}

TEST(expert_library, has_every_tensor_at_every_precision) {
  const auto& library = all_widths();
  EXPECT_THAT(library.bits(), ElementsAre(16, 8, 4, 2));
  for (const auto layer : each<hotset::layer_id>(12)) {
    for (const auto expert : each<hotset::expert_id>(32)) {
      const auto halves = weights().expert_bytes(index_of(layer), index_of(expert));
      const auto kept = library.tensors({layer, expert}, 0_precision);
      ASSERT_EQ(kept.size(), 3U);
      for (std::size_t t = 0; t < 3; ++t) ASSERT_TRUE(same(kept[t], halves[t]));
    }
  }
  const auto& last = weights().expert(11, 31);
  const std::array from{last.gate, last.up, last.down};
  for (auto p = 1_precision; p < 4; ++p) {
    const auto tensors = library.tensors({11_layer, 31_expert}, p);
    ASSERT_EQ(tensors.size(), 3U);
    for (std::size_t t = 0; t < 3; ++t) {
      const std::size_t rows = t == 2 ? 96 : 40;
      std::vector<std::byte> wanted(
          quantised_bytes(rows, 3840 / rows, library.bits()[index_of(p)]));
      quantise({from[t], 3840}, rows, 3840 / rows, library.bits()[index_of(p)], wanted);
      EXPECT_TRUE(same(tensors[t], wanted)) << "precision " << p << ", tensor " << t;
    }
  }
}

TEST(expert_library, has_nothing_for_other_keys) {
  const auto& library = all_widths();
  using key = hotset::expert_key;
  for (const key outside : {key{hotset::before_layers, 0_expert}, key{0_layer, hotset::no_expert},
                            key{12_layer, 0_expert}, key{0_layer, 32_expert}, hotset::no_key})
    EXPECT_TRUE(library.tensors(outside, 0_precision).empty());
  EXPECT_TRUE(library.tensors({0_layer, 0_expert}, 4_precision).empty());
  EXPECT_EQ(library.tensors({11_layer, 31_expert}, 3_precision).size(), 3U);
}

TEST(expert_library, computes_with_the_tensors_it_names) {
  const auto& library = all_widths();
  for (const auto p : each<precision_id>(4)) {
    const auto expert = library.expert({3_layer, 17_expert}, p);
    const auto tensors = library.tensors({3_layer, 17_expert}, p);
    EXPECT_EQ(static_cast<const void*>(expert.gate), tensors[0].data());
    EXPECT_EQ(static_cast<const void*>(expert.up), tensors[1].data());
    EXPECT_EQ(static_cast<const void*>(expert.down), tensors[2].data());
    EXPECT_EQ(expert.bits, library.bits()[index_of(p)]);
  }
}

TEST(expert_library, layouts_and_shape_have_the_bytes_of_the_tensors) {
  const auto& library = all_widths();
  const auto layouts = library.layouts();
  const auto shape = library.shape(7);
  ASSERT_EQ(layouts.size(), 4U);
  EXPECT_FALSE(shape.validate());
  ASSERT_EQ(shape.precisions(), 4U);
  EXPECT_EQ(shape.keys(), 12U * 32U);
  EXPECT_EQ(shape.top_k, 4);
  EXPECT_EQ(shape.max_tokens_per_visit, 7);
  EXPECT_EQ(library.shape().max_tokens_per_visit, 2048);
  EXPECT_THAT(shape.expert_bytes, ElementsAre(23040U));
  EXPECT_THAT(shape.lower_precisions,
              ElementsAre(ElementsAre(12384U), ElementsAre(6624U), ElementsAre(3744U)));
  for (const auto p : each<precision_id>(4)) {
    EXPECT_FALSE(layouts[index_of(p)].validate());
    EXPECT_EQ(layouts[index_of(p)].bytes(), shape.bytes_of(0_layer, p));
    const auto& tensors = layouts[index_of(p)].tensors;
    ASSERT_EQ(tensors.size(), 3U);
    for (std::size_t t = 0; t < 3; ++t) {
      EXPECT_EQ(tensors[t].name, (std::array{"gate_proj", "up_proj", "down_proj"}[t]));
      EXPECT_EQ(tensors[t].bytes, library.tensors({5_layer, 5_expert}, p)[t].size());
    }
  }
  const expert_library two(weights(), "4:2");
  EXPECT_THAT(two.shape().expert_bytes, ElementsAre(6624U));
  EXPECT_THAT(two.shape().lower_precisions, ElementsAre(ElementsAre(3744U)));
}

TEST(resident_copies, halves_give_the_bytes_of_the_model) {
  resident_copies copies(all_widths(), 0_precision);
  EXPECT_EQ(logits_of(copies, text), resident_logits(text));
}

TEST(expert_library, needs_neither_the_model_nor_its_own_place) {
  std::optional<model> other(std::in_place, HOTSET_TINY_MOE_DIR);
  expert_library first(*other, "16:2");
  other.reset();
  const expert_library moved(std::move(first));
  for (const auto p : each<precision_id>(2))
    for (std::size_t t = 0; t < 3; ++t)
      EXPECT_TRUE(
          same(moved.tensors({7_layer, 9_expert}, p)[t],
               all_widths().tensors({7_layer, 9_expert}, p == 0 ? 0_precision : 3_precision)[t]));
}

TEST(expert_library, a_weight_that_is_not_finite_is_refused_unless_it_stays_as_it_is) {
  const std::filesystem::path source = HOTSET_TINY_MOE_DIR;
  const trace_samples::temporary_folder folder;
  folder.write("config.json", trace_samples::read_all(source / "config.json"));
  auto file = trace_samples::read_all(source / "model.safetensors");
  const auto down = weights().expert_bytes(3, 17)[2];
  const auto at = file.find(std::string(reinterpret_cast<const char*>(down.data()), down.size()));
  ASSERT_NE(at, std::string::npos);
  file.replace(at + 100, 2, std::string{'\0', '\x7C'});  // infinity
  folder.write("model.safetensors", file);
  const model broken(folder.path());
  EXPECT_NO_THROW(expert_library(broken, "16"));
  trace_samples::expect_refused(
      [&] { (void)expert_library(broken, "16:8"); },
      {"layer 3, expert 17, down_proj: a weight that is not finite, accepted: finite weights"});
}

}  // namespace
}  // namespace expert_library_test
