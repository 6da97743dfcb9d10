// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/experts/expert_library.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>

#include <fmt/format.h>

#include "hotset/core/error.hpp"
#include "lab/errors.hpp"
#include "tiny_moe/model/quantised.hpp"

namespace tiny_moe {
namespace {

constexpr std::size_t tensors_of_expert = 3;
constexpr std::array<const char*, tensors_of_expert> names{"gate_proj", "up_proj", "down_proj"};

bool is_finite_half(std::uint16_t half) noexcept { return (half & 0x7C00U) != 0x7C00U; }

}  // namespace

std::vector<int> parse_precisions(std::string_view text) {
  std::vector<int> bits;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (;;) {
    int value = 0;
    const auto [rest, error] = std::from_chars(at, end, value);
    const bool falls = bits.empty() || value < bits.back();
    if (error != std::errc{} || !is_weight_width(value) || !falls) break;
    bits.push_back(value);
    if (rest == end) return bits;
    if (*rest != ':') break;
    at = rest + 1;
  }
  throw hotset::lab::usage_error(
      fmt::format("precision '{}', accepted: falling bits of 16, 8, 4, 2 such as 16:8:4", text));
}

expert_library::expert_library(const model& weights, std::string_view ladder)
    : config_(weights.config()), bits_(parse_precisions(ladder)) {
  std::size_t total = 0;
  for (const auto& layout : layouts()) total += layout.bytes() * config_.layers * config_.experts;
  bytes_.resize(total);
  tensors_.reserve(bits_.size() * config_.layers * config_.experts * tensors_of_expert);
  const std::size_t size = config_.hidden_size * config_.inner_size;
  std::span<std::byte> free(bytes_);
  for (const int bits : bits_) {
    for (std::size_t l = 0; l < config_.layers; ++l) {
      for (std::size_t e = 0; e < config_.experts; ++e) {
        const expert_tensors& expert = weights.expert(l, e);
        const std::array from{expert.gate, expert.up, expert.down};
        for (std::size_t t = 0; t < tensors_of_expert; ++t) {
          const std::span halves(from[t], size);
          if (bits != 16 && !std::all_of(halves.begin(), halves.end(), is_finite_half)) {
            throw hotset::trace_error(fmt::format(
                "layer {}, expert {}, {}: a weight that is not finite, accepted: finite weights", l,
                e, names[t]));
          }
          const auto out = free.first(quantised_bytes(rows(t), columns(t), bits));
          quantise(halves, rows(t), columns(t), bits, out);
          tensors_.emplace_back(out);
          free = free.subspan(out.size());
        }
      }
    }
  }
}

std::span<const hotset::tensor_bytes> expert_library::tensors(
    hotset::expert_key key, hotset::precision_id precision) const noexcept {
  // A negative layer becomes far out of range.
  const auto layer = static_cast<std::size_t>(key.layer);
  const auto expert = static_cast<std::size_t>(key.expert);
  if (layer >= config_.layers || expert >= config_.experts || precision >= bits_.size()) return {};
  const std::size_t at = (index_of(precision) * config_.layers + layer) * config_.experts + expert;
  return std::span(tensors_).subspan(at * tensors_of_expert, tensors_of_expert);
}

expert_tensors expert_library::expert(hotset::expert_key key,
                                      hotset::precision_id precision) const noexcept {
  const auto bytes = tensors(key, precision);
  const auto tensor = [&](std::size_t t) {
    return reinterpret_cast<const std::uint16_t*>(bytes[t].data());
  };
  return {
      .gate = tensor(0), .up = tensor(1), .down = tensor(2), .bits = bits_[index_of(precision)]};
}

std::vector<hotset::expert_layout> expert_library::layouts() const {
  std::vector<hotset::expert_layout> out(bits_.size());
  for (std::size_t p = 0; p < bits_.size(); ++p) {
    for (std::size_t t = 0; t < tensors_of_expert; ++t) {
      out[p].tensors.push_back({names[t], quantised_bytes(rows(t), columns(t), bits_[p])});
    }
  }
  return out;
}

hotset::geometry expert_library::shape(std::size_t max_tokens) const {
  hotset::geometry out{.layers = static_cast<std::int32_t>(config_.layers),
                       .experts = static_cast<std::int32_t>(config_.experts),
                       .top_k = static_cast<std::int32_t>(config_.top_k),
                       .max_tokens_per_visit = static_cast<std::int32_t>(
                           max_tokens == 0 ? config_.max_positions : max_tokens)};
  for (const auto& layout : layouts()) {
    if (out.expert_bytes.empty()) {
      out.expert_bytes = {layout.bytes()};
    } else {
      out.lower_precisions.push_back({layout.bytes()});
    }
  }
  return out;
}

void resident_copies::run(const visit_inputs& visit, visit_compute& compute) {
  compute.all([&](std::int32_t expert) {
    return library_->expert({visit.layer, hotset::expert_id{expert}}, precision_);
  });
}

}  // namespace tiny_moe
