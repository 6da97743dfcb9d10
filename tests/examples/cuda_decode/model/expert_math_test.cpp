// SPDX-License-Identifier: Apache-2.0
// Sums use the written order, scales belong to their blocks, and the result is an expert's.

#include "cuda_decode/model/expert_math.hpp"

#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "cuda_decode/decoder/host_kernels.hpp"
#include "fake_machine.hpp"
#include "written_ids.hpp"

namespace cuda_decode::expert_math_test {
namespace {

using namespace hotset::literals;

TEST(silu, is_near_the_exact_one) {
  for (int i = -12000; i <= 12000; ++i) {
    const float x = static_cast<float>(i) / 128.0F;
    const double exact = double{x} / (1.0 + std::exp(-double{x}));
    EXPECT_NEAR(double{silu(x)}, exact, 4e-7 * std::abs(exact) + 1e-32) << x;
  }
  EXPECT_EQ(silu(0.0F), 0.0F);
  EXPECT_EQ(silu(200.0F), 200.0F);
}

TEST(a_sum, is_in_the_written_order) {
  // Groups of 8 go to the lanes in turn: of 33 groups lane 0 gets two.
  constexpr std::uint32_t columns = 33 * 8;
  std::vector<std::uint16_t> weights(columns);
  std::vector<float> in(columns);
  for (std::uint32_t i = 0; i < columns; ++i) {
    weights[i] = static_cast<std::uint16_t>(0x3f80 + i);
    in[i] = 1.0F / static_cast<float>(i + 3);  // full precision: every rounding counts
  }
  const matrix_view m{reinterpret_cast<const std::byte*>(weights.data()), nullptr, columns, 1, 1};
  float wanted = 0;
  for (const std::uint32_t group : {0U, 32U})
    for (std::uint32_t i = 8 * group; i < 8 * group + 8; ++i)
      wanted = std::fma(from_bf16(weights[i]), in[i], wanted);
  EXPECT_EQ(lane_sum<number_format::bf16>(m, 0, in.data(), 0), wanted);
  wanted = 0;
  for (std::uint32_t i = 8 * 5; i < 8 * 6; ++i)
    wanted = std::fma(from_bf16(weights[i]), in[i], wanted);
  EXPECT_EQ(lane_sum<number_format::bf16>(m, 0, in.data(), 5), wanted);
}

// Value of weight (row, column), computed as the format's description says.
double weight(const expert_form& form, const matrix_place& place,
              std::span<const hotset::tensor_bytes> tensors, std::uint32_t row,
              std::uint32_t column) {
  const auto at = std::size_t{row} * place.columns + column;
  const auto* const values = tensors[place.tensor].data() + place.first_byte;
  const auto* const scales = tensors[place.scales].data() + place.first_scale;
  const auto block = std::size_t{row / form.block_rows} * (place.columns / form.block_columns) +
                     column / form.block_columns;
  switch (form.format) {
    case number_format::bf16:
    case number_format::f16: {
      std::uint16_t bits = 0;
      std::memcpy(&bits, values + 2 * at, 2);
      return double{form.format == number_format::bf16 ? from_bf16(bits) : from_f16(bits)};
    }
    case number_format::e4m3: {
      float scale = 0;
      std::memcpy(&scale, scales + 4 * block, 4);
      return double{from_e4m3(static_cast<std::uint32_t>(values[at]))} * double{scale};
    }
    case number_format::e2m1: break;
  }
  const auto pair = static_cast<std::uint32_t>(values[at / 2]);
  return double{from_e2m1((pair >> (4 * (at % 2))) & 15U)} *
         double{from_e8m0(static_cast<std::uint32_t>(scales[block]))};
}

double silu_of(double x) { return x / (1.0 + std::exp(-x)); }

class an_expert : public testing::TestWithParam<number_format> {};

TEST_P(an_expert, is_down_of_silu_gate_times_up) {
  fake_machine machine;
  const auto shape =
      make_shape("test", GetParam(),
                 {.layers = 1, .experts = 3, .top_k = 2, .hidden = 320, .inner = 96, .block = 32});
  hotset::cuda::pinned_memory pages(machine.api, host_weights::bytes_for(shape));
  const host_weights weights(shape, pages);
  const auto tensors = weights.source().tensors({0_layer, 2_expert}, 0_precision);
  const auto& form = shape.form;
  std::vector<float> in(form.hidden);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i % 13) / 8.0F - 0.7F;

  std::vector<double> inner(form.inner);
  for (std::uint32_t j = 0; j < form.inner; ++j) {
    double gate = 0;
    double up = 0;
    for (std::uint32_t i = 0; i < form.hidden; ++i) {
      gate += weight(form, form.gate, tensors, j, i) * double{in[i]};
      up += weight(form, form.up, tensors, j, i) * double{in[i]};
    }
    inner[j] = silu_of(gate) * up;
  }

  const auto ids = hotset::support::expert_ids({1, 2});
  const std::vector<hotset::slot_id> row = {hotset::no_slot, hotset::no_slot, 0_slot};
  std::vector<float> got_inner(2 * form.inner);
  std::vector<float> got(2 * form.hidden, 99.0F);
  std::uint32_t skipped = 0;
  expert_arguments a;
  a.form = form;
  for (std::size_t t = 0; t < tensors.size(); ++t) a.bank.base[t] = tensors[t].data();
  a.ids = ids.data();
  a.row = row.data();
  a.experts = 3;
  a.places = a.top_k = 2;
  a.in = in.data();
  a.inner = got_inner.data();
  a.out = got.data();
  a.skipped = &skipped;
  on_host::gate_up(a);
  on_host::down(a);
  EXPECT_EQ(skipped, 1U);
  for (std::uint32_t o = 0; o < form.hidden; ++o) {
    double wanted = 0;
    double size = 0;
    for (std::uint32_t j = 0; j < form.inner; ++j) {
      const auto part = weight(form, form.down, tensors, o, j) * inner[j];
      wanted += part;
      size += std::abs(part);
    }
    EXPECT_NEAR(double{got[form.hidden + o]}, wanted, 1e-5 * size) << o;
    EXPECT_EQ(got[o], 0.0F);  // the place without a slot adds nothing
  }
}

INSTANTIATE_TEST_SUITE_P(formats, an_expert,
                         testing::Values(number_format::bf16, number_format::f16,
                                         number_format::e4m3, number_format::e2m1));

}  // namespace
}  // namespace cuda_decode::expert_math_test
