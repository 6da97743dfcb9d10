// SPDX-License-Identifier: Apache-2.0
#include "lab/traces/trace_hash.hpp"

#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

namespace hotset::lab {
namespace {

constexpr std::uint64_t odd_1 = 0x9E3779B185EBCA87;
constexpr std::uint64_t odd_2 = 0xC2B2AE3D27D4EB4F;

std::uint64_t mixed_in(std::uint64_t hash, std::uint64_t word) noexcept {
  return std::rotl(hash + word * odd_2, 31) * odd_1;
}

/// Four independent lanes: one would wait for the multiplications of the word before.
std::uint64_t with_words(std::uint64_t hash, std::span<const std::byte> bytes) noexcept {
  std::array<std::uint64_t, 4> lanes{hash, ~hash, hash + odd_1, hash + odd_2};
  std::array<std::uint64_t, 4> words{};
  hash = mixed_in(hash, bytes.size());
  for (; bytes.size() >= sizeof words; bytes = bytes.subspan(sizeof words)) {
    std::memcpy(words.data(), bytes.data(), sizeof words);
    for (std::size_t i = 0; i < lanes.size(); ++i) lanes[i] = mixed_in(lanes[i], words[i]);
  }
  words = {};
  if (!bytes.empty()) std::memcpy(words.data(), bytes.data(), bytes.size());
  for (std::size_t i = 0; i < lanes.size(); ++i)
    hash = mixed_in(hash, mixed_in(lanes[i], words[i]));
  return hash;
}

template <class T>
std::uint64_t with_array(std::uint64_t hash, const std::vector<T>& values) noexcept {
  return with_words(hash, std::as_bytes(std::span(values)));
}

std::uint64_t with_routing(const routing_trace& trace) noexcept {
  const std::array shape{trace.layers, trace.experts, trace.top_k};
  auto hash = with_words(0, std::as_bytes(std::span(shape)));
  hash = with_array(hash, trace.ids);
  hash = with_array(hash, trace.step);
  return with_array(hash, trace.sequence);
}

std::uint64_t well_mixed(std::uint64_t hash) noexcept {
  hash = (hash ^ (hash >> 29)) * odd_2;
  return hash ^ (hash >> 32);
}

}  // namespace

std::uint64_t trace_hash(const routing_trace& trace) noexcept {
  return well_mixed(with_routing(trace));
}

std::uint64_t content_hash(const routing_trace& trace) noexcept {
  auto hash = with_routing(trace);
  hash = with_array(hash, trace.expert_bytes);
  hash = with_array(hash, trace.kind);
  hash = with_array(hash, trace.weights);
  hash = with_array(hash, trace.logits);
  hash = with_words(hash, trace.probabilities.bytes());
  hash = with_words(hash, trace.hidden.bytes());
  hash = with_words(hash, trace.predictions.bytes());
  hash = with_array(hash, trace.adapter);
  return well_mixed(with_array(hash, trace.token_ids));
}

std::uint64_t text_hash(std::string_view text) noexcept {
  return well_mixed(with_words(0, std::as_bytes(std::span(text.data(), text.size()))));
}

}  // namespace hotset::lab
