// SPDX-License-Identifier: Apache-2.0
#include "cuda_decode/model/weights.hpp"

#include <cmath>
#include <cstring>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "fake_machine.hpp"

namespace cuda_decode::weights_test {
namespace {

using namespace hotset::literals;

TEST(weights, are_a_function_of_their_place) {
  fake_machine machine;
  const auto shape = shape_named("small-mxfp4");
  hotset::cuda::pinned_memory pages(machine.api, host_weights::bytes_for(shape));
  const host_weights weights(shape, pages, 42);
  std::set<std::uint64_t> words;
  std::size_t count = 0;
  for (std::size_t k = 0; k < shape.geometry().keys(); ++k) {
    const auto key = shape.geometry().key(k);
    const auto tensors = weights.source().tensors(key, 0_precision);
    ASSERT_EQ(tensors.size(), 4U);
    for (std::size_t t = 0; t < 4; ++t) {
      EXPECT_TRUE(pages.holds(tensors[t]));
      for (std::size_t at = 0; at + 8 <= tensors[t].size(); at += 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, tensors[t].data() + at, 8);
        ASSERT_EQ(word, weight_word(42, key, t, shape.tensors[t].content, at / 8));
        if (t == 0) {
          words.insert(word);
          ++count;
        }
      }
    }
  }
  EXPECT_EQ(words.size(), count);  // no expert, layer or offset repeats another
  EXPECT_NE(weight_word(42, {0_layer, 0_expert}, 0, tensor_content::bf16, 0),
            weight_word(43, {0_layer, 0_expert}, 0, tensor_content::bf16, 0));
}

TEST(weights, of_a_ragged_tensor_end_with_it) {
  std::vector<std::byte> bytes(21, std::byte{0xee});
  fill_weights(1, {2_layer, 3_expert}, 1, tensor_content::e4m3, std::span(bytes).first(19));
  const auto last = weight_word(1, {2_layer, 3_expert}, 1, tensor_content::e4m3, 2);
  EXPECT_EQ(std::memcmp(bytes.data() + 16, &last, 3), 0);
  EXPECT_EQ(bytes[19], std::byte{0xee});
}

TEST(weights, are_moderate_numbers) {
  struct row {
    std::size_t tensor;
    tensor_content content;
    unsigned bits;
    float (*value)(std::uint32_t);
    float least, most;
  };
  const row rows[] = {
      {0, tensor_content::bf16, 16, [](std::uint32_t b) { return from_bf16(b); }, 0x1p-7F, 0x1p-3F},
      {0, tensor_content::f16, 16, [](std::uint32_t b) { return from_f16(b); }, 0x1p-7F, 0x1p-3F},
      {0, tensor_content::e4m3, 8, [](std::uint32_t b) { return from_e4m3(b); }, 0.0F, 2.0F},
      {1, tensor_content::e8m0_scales, 8, [](std::uint32_t b) { return from_e8m0(b); }, 0x1p-7F,
       0x1.1p-4F},
      {1, tensor_content::f32_scales, 32, [](std::uint32_t b) { return float_of(b); }, 0x1p-7F,
       0x1p-5F}};
  for (const auto& r : rows)
    for (std::uint64_t w = 0; w < 500; ++w) {
      const auto word = weight_word(1, {1_layer, 2_expert}, r.tensor, r.content, w);
      for (unsigned at = 0; at < 64; at += r.bits) {
        const auto part = (word >> at) & ((std::uint64_t{1} << r.bits) - 1);
        const auto x = std::abs(r.value(static_cast<std::uint32_t>(part)));
        EXPECT_TRUE(x >= r.least && x < r.most) << x;
      }
    }
}

TEST(weights, stay_within_the_budget_or_are_refused) {
  fake_machine machine;
  const auto shape = shape_named("small-bf16");
  hotset::cuda::pinned_memory pages(machine.api, host_weights::bytes_for(shape) - 1);
  EXPECT_THROW(host_weights(shape, pages), hotset::invalid_config);
  hotset::cuda::pinned_memory enough(machine.api, host_weights::bytes_for(shape));
  const host_weights weights(shape, enough);
  EXPECT_EQ(enough.bytes(), host_weights::bytes_for(shape));
}

}  // namespace
}  // namespace cuda_decode::weights_test
