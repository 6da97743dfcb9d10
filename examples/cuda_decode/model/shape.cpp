// SPDX-License-Identifier: Apache-2.0
#include "cuda_decode/model/shape.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace cuda_decode {
namespace {

constexpr std::uint32_t mx_block = 32;  // weights of a row per e8m0 scale

struct named {
  std::string_view name;
  number_format format;
  shape_sizes sizes;
};
constexpr std::array<named, 8> shapes = {{
    {"qwen3-30b-a3b", number_format::bf16, {48, 128, 8, 2048, 768}},
    {"olmoe", number_format::bf16, {16, 64, 8, 2048, 1024}},
    {"mixtral-8x7b", number_format::bf16, {32, 8, 2, 4096, 14336}},
    {"gpt-oss-120b", number_format::e2m1, {36, 128, 4, 2880, 2880}},
    {"minimax-m2", number_format::e4m3, {62, 256, 8, 3072, 1536, 128}},
    {"small-bf16", number_format::bf16, {3, 16, 2, 64, 32}},
    {"small-fp8", number_format::e4m3, {3, 16, 2, 64, 32, 32}},
    {"small-mxfp4", number_format::e2m1, {3, 16, 2, 64, 32}},
}};
constexpr auto names = [] {
  std::array<std::string_view, shapes.size()> out{};
  for (std::size_t i = 0; i < shapes.size(); ++i) out[i] = shapes[i].name;
  return out;
}();

void require_multiple(const char* what, std::uint32_t value, std::uint32_t of) {
  if (value == 0 || value % of != 0)
    throw hotset::invalid_config(std::string(what) + " = " + std::to_string(value) +
                                 ", accepted: a multiple of " + std::to_string(of));
}

// Bytes of `count` weights.
std::size_t packed(number_format format, std::size_t count) {
  switch (format) {
    case number_format::bf16:
    case number_format::f16: return 2 * count;
    case number_format::e4m3: return count;
    case number_format::e2m1: break;
  }
  return count / 2;
}

// A matrix [2 * inner, hidden] holds gate, then up: one tensor, and one with scales if there are any.
// NOLINTNEXTLINE(bugprone-easily-swappable-parameters): weights, then their scales
void add_joined(model_shape& shape, std::size_t scale_bytes, tensor_content values,
                tensor_content scales) {
  auto& form = shape.form;
  const bool has_scales = scale_bytes != 0;
  const std::size_t count = std::size_t{form.inner} * form.hidden;
  const std::size_t block = std::size_t{form.block_rows} * form.block_columns;
  const auto bytes = packed(form.format, count);
  const auto scale_part = count / block * scale_bytes;
  shape.tensors.push_back({"gate_up", values, 2 * bytes});
  if (has_scales) shape.tensors.push_back({"gate_up_scales", scales, 2 * scale_part});
  shape.tensors.push_back({"down", values, bytes});
  if (has_scales) shape.tensors.push_back({"down_scales", scales, scale_part});
  const std::uint32_t down = has_scales ? 2 : 1;
  form.gate = {0, has_scales ? 1U : 0U, 0, 0, form.hidden};
  form.up = {0, has_scales ? 1U : 0U, bytes, scale_part, form.hidden};
  form.down = {down, has_scales ? down + 1 : down, 0, 0, form.inner};
}

}  // namespace

std::uint64_t model_shape::expert_bytes() const noexcept {
  std::uint64_t sum = 0;
  for (const auto& t : tensors) sum += t.bytes;
  return sum;
}

hotset::expert_layout model_shape::layout() const {
  hotset::expert_layout out;
  for (const auto& t : tensors) out.tensors.push_back({t.name, t.bytes});
  return out;
}

hotset::geometry model_shape::geometry(std::int32_t max_tokens) const {
  return {.layers = layers,
          .experts = experts,
          .top_k = top_k,
          .max_tokens_per_visit = max_tokens,
          .expert_bytes = {expert_bytes()}};
}

model_shape make_shape(std::string name, number_format format, const shape_sizes& sizes) {
  model_shape shape;
  shape.name = std::move(name);
  shape.layers = sizes.layers;
  shape.experts = sizes.experts;
  shape.top_k = sizes.top_k;
  auto& form = shape.form;
  form.format = format;
  form.hidden = sizes.hidden;
  form.inner = sizes.inner;
  if (format == number_format::e4m3) form.block_rows = form.block_columns = sizes.block;
  if (format == number_format::e2m1) form.block_columns = mx_block;
  require_multiple("block", std::max(form.block_columns, sum_group), sum_group);
  require_multiple("hidden", form.hidden, std::max(form.block_columns, sum_group));
  require_multiple("inner", form.inner, std::max(form.block_columns, sum_group));
  switch (format) {
    case number_format::bf16:
      add_joined(shape, 0, tensor_content::bf16, tensor_content::f32_scales);
      break;
    case number_format::e4m3:
      add_joined(shape, sizeof(float), tensor_content::e4m3, tensor_content::f32_scales);
      break;
    case number_format::e2m1:
      add_joined(shape, 1, tensor_content::e2m1_pairs, tensor_content::e8m0_scales);
      break;
    case number_format::f16: {
      const auto bytes = packed(format, std::size_t{form.inner} * form.hidden);
      for (const auto* tensor : {"gate", "up", "down"})
        shape.tensors.push_back({tensor, tensor_content::f16, bytes});
      form.gate = {0, 0, 0, 0, form.hidden};
      form.up = {1, 1, 0, 0, form.hidden};
      form.down = {2, 2, 0, 0, form.inner};
      break;
    }
  }
  hotset::require_valid(shape.geometry().validate());
  return shape;
}

std::span<const std::string_view> shape_names() noexcept { return names; }

model_shape shape_named(std::string_view name) {
  for (const auto& s : shapes)
    if (s.name == name) return make_shape(std::string(s.name), s.format, s.sizes);
  std::string accepted;
  for (const auto n : names) accepted += (accepted.empty() ? "" : ", ") + std::string(n);
  throw hotset::invalid_config("no shape '" + std::string(name) + "', accepted: " + accepted);
}

}  // namespace cuda_decode
