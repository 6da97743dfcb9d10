// SPDX-License-Identifier: Apache-2.0
#include "cuda_decode/model/shape.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim_samples.hpp"

namespace cuda_decode::shape_test {
namespace {

TEST(shapes, have_the_true_sizes) {
  struct row {
    const char* name;
    std::int32_t layers, experts, top_k;
    std::uint64_t expert_bytes;
    std::size_t tensors;
  };
  // bf16: 3 * hidden * inner * 2. mxfp4: 3 * hidden * inner / 2, and a byte for each 32. fp8: 3 * hidden * inner, and 4
  // bytes for each 128 x 128.
  const row rows[] = {
      {"qwen3-30b-a3b", 48, 128, 8, 9'437'184, 2}, {"olmoe", 16, 64, 8, 12'582'912, 2},
      {"mixtral-8x7b", 32, 8, 2, 352'321'536, 2},  {"gpt-oss-120b", 36, 128, 4, 13'219'200, 4},
      {"minimax-m2", 62, 256, 8, 14'159'232, 4},
  };
  for (const auto& r : rows) {
    SCOPED_TRACE(r.name);
    const auto shape = shape_named(r.name);
    EXPECT_EQ(shape.layers, r.layers);
    EXPECT_EQ(shape.experts, r.experts);
    EXPECT_EQ(shape.top_k, r.top_k);
    EXPECT_EQ(shape.expert_bytes(), r.expert_bytes);
    EXPECT_EQ(shape.tensors.size(), r.tensors);
    EXPECT_FALSE(shape.layout().validate());
    EXPECT_FALSE(shape.geometry().validate());
  }
}

TEST(shapes, of_blocks_have_four_tensors) {
  const auto fp8 = shape_named("minimax-m2");
  ASSERT_EQ(fp8.tensors.size(), 4U);
  EXPECT_EQ(fp8.tensors[0].bytes, 2U * 1536 * 3072);
  EXPECT_EQ(fp8.tensors[1].bytes, 2U * 12 * 24 * 4);
  EXPECT_EQ(fp8.tensors[2].bytes, 3072U * 1536);
  EXPECT_EQ(fp8.tensors[3].bytes, 24U * 12 * 4);
  const auto mxfp4 = shape_named("gpt-oss-120b");
  EXPECT_EQ(mxfp4.tensors[1].bytes, 2U * 2880 * 90);
  EXPECT_EQ(mxfp4.tensors[3].bytes, 2880U * 90);
}

TEST(shapes, have_gate_before_up_in_one_tensor_and_in_its_scales) {
  const auto fp8 = shape_named("minimax-m2").form;
  EXPECT_EQ(fp8.gate.first_byte + fp8.gate.first_scale, 0U);
  EXPECT_EQ(fp8.up.tensor, fp8.gate.tensor);
  EXPECT_EQ(fp8.up.scales, fp8.gate.scales);
  EXPECT_EQ(fp8.up.first_byte, 1536U * 3072);
  EXPECT_EQ(fp8.up.first_scale, 12U * 24 * 4);
  EXPECT_EQ(fp8.down.tensor, 2U);
  EXPECT_EQ(fp8.down.scales, 3U);
  EXPECT_EQ(fp8.gate.columns, 3072U);
  EXPECT_EQ(fp8.down.columns, 1536U);
  const auto mxfp4 = shape_named("gpt-oss-120b").form;
  EXPECT_EQ(mxfp4.up.first_byte, 2880U * 2880 / 2);
  EXPECT_EQ(mxfp4.up.first_scale, 2880U * 90);
  const auto bf16 = shape_named("olmoe").form;
  EXPECT_EQ(bf16.up.first_byte, 1024U * 2048 * 2);
  EXPECT_EQ(bf16.down.tensor, 1U);
  const auto f16 = make_shape("f16", number_format::f16, {1, 4, 2, 64, 32}).form;
  EXPECT_EQ(f16.up.tensor, 1U);
  EXPECT_EQ(f16.up.first_byte, 0U);
  EXPECT_EQ(f16.down.tensor, 2U);
}

TEST(shapes, are_refused_with_the_accepted_range) {
  const auto told =
      hotset::support::refusal<hotset::invalid_config>([] { (void)shape_named("gpt-2"); });
  EXPECT_THAT(told, testing::HasSubstr("'gpt-2'"));
  for (const auto name : shape_names()) EXPECT_THAT(told, testing::HasSubstr(std::string(name)));
  EXPECT_THROW((void)make_shape("x", number_format::e4m3, {1, 4, 2, 100, 128, 32}),
               hotset::invalid_config);
  EXPECT_THROW((void)make_shape("x", number_format::bf16, {1, 4, 2, 64, 12}),
               hotset::invalid_config);
}

}  // namespace
}  // namespace cuda_decode::shape_test
