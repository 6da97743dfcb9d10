// SPDX-License-Identifier: Apache-2.0
#include "lab/traces/trace_hash.hpp"

#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <span>

namespace hotset::lab {
namespace {

constexpr std::uint64_t odd_1 = 0x9E3779B185EBCA87;
constexpr std::uint64_t odd_2 = 0xC2B2AE3D27D4EB4F;

std::uint64_t mixed(std::uint64_t hash, std::uint64_t word) noexcept {
  return std::rotl(hash + word * odd_2, 31) * odd_1;
}

/// Four independent lanes: one would wait for the multiplications of the word before.
std::uint64_t with_words(std::uint64_t hash, std::span<const std::byte> bytes) noexcept {
  std::array<std::uint64_t, 4> lanes{hash, ~hash, hash + odd_1, hash + odd_2};
  std::array<std::uint64_t, 4> words{};
  hash = mixed(hash, bytes.size());
  for (; bytes.size() >= sizeof words; bytes = bytes.subspan(sizeof words)) {
    std::memcpy(words.data(), bytes.data(), sizeof words);
    for (std::size_t i = 0; i < lanes.size(); ++i) lanes[i] = mixed(lanes[i], words[i]);
  }
  words = {};
  if (!bytes.empty()) std::memcpy(words.data(), bytes.data(), bytes.size());
  for (std::size_t i = 0; i < lanes.size(); ++i) hash = mixed(hash, mixed(lanes[i], words[i]));
  return hash;
}

template <class T>
std::uint64_t with(std::uint64_t hash, std::span<const T> values) noexcept {
  return with_words(hash, std::as_bytes(values));
}

}  // namespace

std::uint64_t trace_hash(const routing_trace& trace) noexcept {
  const std::array shape{trace.layers, trace.experts, trace.top_k};
  auto hash = with(0, std::span<const std::int32_t>(shape));
  hash = with(hash, std::span<const expert_id>(trace.ids));
  hash = with(hash, std::span<const std::uint32_t>(trace.step));
  hash = with(hash, std::span<const std::uint32_t>(trace.sequence));
  hash ^= hash >> 29;
  hash *= odd_2;
  return hash ^ (hash >> 32);
}

}  // namespace hotset::lab
