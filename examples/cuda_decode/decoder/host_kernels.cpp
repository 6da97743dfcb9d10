// SPDX-License-Identifier: Apache-2.0
#include "cuda_decode/decoder/host_kernels.hpp"

#include <algorithm>
#include <array>
#include <span>

#include "hotset/core/numbers/unique_ids.hpp"

namespace cuda_decode::on_host {
namespace {

template <std::size_t Lanes>
float reduced(std::array<float, Lanes>& lanes) noexcept {
  for (std::size_t half = Lanes / 2; half != 0; half /= 2)
    for (std::size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  return lanes[0];
}

template <number_format Format>
float row_sum(const matrix_view& m, std::uint32_t row, const float* in) noexcept {
  std::array<float, sum_lanes> lanes{};
  for (std::uint32_t lane = 0; lane < sum_lanes; ++lane)
    lanes[lane] = lane_sum<Format>(m, row, in, lane);
  return reduced(lanes);
}

void scaled(const float* in, std::uint32_t size, float* out) noexcept {
  std::array<float, norm_lanes> lanes{};
  for (std::uint32_t lane = 0; lane < norm_lanes; ++lane)
    lanes[lane] = lane_squares(in, size, lane);
  const float scale = norm_scale(reduced(lanes), size);
  for (std::uint32_t i = 0; i < size; ++i) out[i] = in[i] * scale;
}

template <number_format Format>
void gate_up_of(const expert_arguments& a) noexcept {
  const auto& form = a.form;
  for (std::uint32_t place = 0; place < a.places; ++place) {
    const auto found = slot_of(a, place);
    if (found.is_missing) ++*a.skipped;
    if (found.slot < 0) continue;
    const auto gate = matrix_in(form, form.gate, a.bank.base, a.bank.stride, found.slot);
    const auto up = matrix_in(form, form.up, a.bank.base, a.bank.stride, found.slot);
    const float* const in = a.in + std::size_t{place / a.top_k} * form.hidden;
    float* const inner = a.inner + std::size_t{place} * form.inner;
    for (std::uint32_t j = 0; j < form.inner; ++j)
      inner[j] = silu(row_sum<Format>(gate, j, in)) * row_sum<Format>(up, j, in);
  }
}

template <number_format Format>
void down_of(const expert_arguments& a) noexcept {
  const auto& form = a.form;
  for (std::uint32_t place = 0; place < a.places; ++place) {
    const auto found = slot_of(a, place);
    float* const out = a.out + std::size_t{place} * form.hidden;
    if (found.slot < 0) {
      std::fill_n(out, form.hidden, 0.0F);
      continue;
    }
    const auto down = matrix_in(form, form.down, a.bank.base, a.bank.stride, found.slot);
    const float* const inner = a.inner + std::size_t{place} * form.inner;
    for (std::uint32_t o = 0; o < form.hidden; ++o) out[o] = row_sum<Format>(down, o, inner);
  }
}

}  // namespace

void begin(const begin_arguments& a) noexcept {
  if (a.saved != a.from) std::copy_n(a.from, a.size, a.saved);
  scaled(a.from, a.size, a.hidden);
  *a.skipped = 0;
}

void normalize(const normalize_arguments& a) noexcept { scaled(a.in, a.size, a.out); }

void gate_up(const expert_arguments& a) noexcept {
  switch (a.form.format) {
    case number_format::bf16: return gate_up_of<number_format::bf16>(a);
    case number_format::f16: return gate_up_of<number_format::f16>(a);
    case number_format::e4m3: return gate_up_of<number_format::e4m3>(a);
    case number_format::e2m1: return gate_up_of<number_format::e2m1>(a);
  }
}

void down(const expert_arguments& a) noexcept {
  switch (a.form.format) {
    case number_format::bf16: return down_of<number_format::bf16>(a);
    case number_format::f16: return down_of<number_format::f16>(a);
    case number_format::e4m3: return down_of<number_format::e4m3>(a);
    case number_format::e2m1: return down_of<number_format::e2m1>(a);
  }
}

void combine(const combine_arguments& a) noexcept {
  for (std::uint32_t i = 0; i < a.tokens * a.size; ++i) a.hidden[i] = combined(a, i);
}

void finish(const finish_arguments& a) noexcept {
  std::copy_n(a.hidden, a.size, a.carried);
  std::copy_n(a.hidden, a.size, a.result);
  *a.result_skipped = *a.skipped;
}

void mirror(const hotset::cuda::mirror_arguments& a) {
  hotset::unique_ids unique(static_cast<std::size_t>(a.experts), static_cast<std::size_t>(a.count));
  const auto count = static_cast<std::size_t>(a.count);
  const auto experts = static_cast<std::size_t>(a.experts);
  *a.counts = hotset::cuda::mirror_on_host(unique, std::span(a.ids, count),
                                           std::span(a.row, experts), std::span(a.slots, count),
                                           std::span(a.missing, std::min(count, experts)));
}

}  // namespace cuda_decode::on_host
