// SPDX-License-Identifier: Apache-2.0
#include "cuda_decode/model/weights.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <thread>
#include <vector>

namespace cuda_decode {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::size_t alignment = 256;

constexpr std::size_t aligned(std::size_t bytes) noexcept {
  return (bytes + alignment - 1) / alignment * alignment;
}

std::size_t expert_stride(const model_shape& shape) noexcept {
  std::size_t sum = 0;
  for (const auto& t : shape.tensors) sum += aligned(t.bytes);
  return sum;
}

// Finaliser of splitmix64: every bit of the counter affects every bit of the result.
constexpr std::uint64_t mixed(std::uint64_t z) noexcept {
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31U);
}
constexpr std::uint64_t stream_of(std::uint64_t seed, hotset::expert_key key,
                                  std::size_t tensor) noexcept {
  const auto place = (static_cast<std::uint64_t>(key.layer) << 40U) |
                     (static_cast<std::uint64_t>(key.expert) << 8U) | tensor;
  return mixed(mixed(seed + 0x9e3779b97f4a7c15ULL) ^ place);
}

// Masks: random bits to keep, and bits to set.
struct moderate {
  std::uint64_t keep;
  std::uint64_t set;
};
constexpr moderate moderate_for(tensor_content content) noexcept {
  switch (content) {
    case tensor_content::bf16: return {0x81ff81ff81ff81ff, 0x3c003c003c003c00};  // 2^-7 .. 2^-3
    case tensor_content::f16: return {0x8fff8fff8fff8fff, 0x2000200020002000};   // 2^-7 .. 2^-3
    case tensor_content::e4m3: return {0xbfbfbfbfbfbfbfbf, 0};                   // below 2, no NaN
    case tensor_content::e2m1_pairs: return {~std::uint64_t{0}, 0};
    case tensor_content::f32_scales: return {0x00ffffff00ffffff, 0x3c0000003c000000};
    case tensor_content::e8m0_scales: break;
  }
  return {0x0303030303030303, 0x7878787878787878};  // 2^-7 .. 2^-4
}

constexpr std::uint64_t word_at(std::uint64_t stream, moderate bits, std::uint64_t word) noexcept {
  return (mixed(stream + (word + 1) * 0x9e3779b97f4a7c15ULL) & bits.keep) | bits.set;
}

}  // namespace

std::uint64_t weight_word(std::uint64_t seed, hotset::expert_key key, std::size_t tensor,
                          tensor_content content, std::uint64_t word) noexcept {
  return word_at(stream_of(seed, key, tensor), moderate_for(content), word);
}

void fill_weights(std::uint64_t seed, hotset::expert_key key, std::size_t tensor,
                  tensor_content content, std::span<std::byte> to) noexcept {
  const auto stream = stream_of(seed, key, tensor);
  const auto bits = moderate_for(content);
  for (std::size_t at = 0; at < to.size(); at += sizeof(std::uint64_t)) {
    const auto word = word_at(stream, bits, at / sizeof(std::uint64_t));
    std::memcpy(to.data() + at, &word, std::min(sizeof(word), to.size() - at));
  }
}

std::uint64_t host_weights::bytes_for(const model_shape& shape) noexcept {
  return static_cast<std::uint64_t>(shape.layers) * static_cast<std::uint64_t>(shape.experts) *
         expert_stride(shape);
}

host_weights::host_weights(const model_shape& shape, hotset::cuda::pinned_memory& pages,
                           std::uint64_t seed)
    : source_(hotset::memory_expert_source::create(shape.geometry(), {shape.layout()}).value()) {
  const auto stride = expert_stride(shape);
  const auto experts = static_cast<std::size_t>(shape.experts);
  std::vector<std::span<std::byte>> layers;
  layers.reserve(static_cast<std::size_t>(shape.layers));
  for (std::int32_t l = 0; l < shape.layers; ++l)
    layers.push_back(pages.allocate(stride * experts).value());

  const auto keys = shape.geometry().keys();
  std::atomic<std::size_t> next = 0;
  const auto tensors_of = [&](std::size_t index) {
    std::vector<std::span<std::byte>> out;
    auto rest = layers[index / experts].subspan(index % experts * stride, stride);
    for (const auto& t : shape.tensors) {
      out.push_back(rest.first(t.bytes));
      rest = rest.subspan(aligned(t.bytes));
    }
    return out;
  };
  const auto work = [&] {
    for (auto i = next++; i < keys; i = next++) {
      const auto tensors = tensors_of(i);
      for (std::size_t t = 0; t < tensors.size(); ++t)
        fill_weights(seed, shape.geometry().key(i), t, shape.tensors[t].content, tensors[t]);
    }
  };
  {
    std::vector<std::jthread> threads;
    for (unsigned i = 1; i < std::thread::hardware_concurrency(); ++i) threads.emplace_back(work);
    work();
  }
  for (std::size_t i = 0; i < keys; ++i) {
    const auto tensors = tensors_of(i);
    const std::vector<hotset::tensor_bytes> views(tensors.begin(), tensors.end());
    hotset::require_valid(source_.add(shape.geometry().key(i), views));
  }
}

}  // namespace cuda_decode
