// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Which experts a cache should start with: those that it held before, or the popular ones.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/platform/file_bytes.hpp"
#include "hotset/core/pool_layout.hpp"

namespace hotset {

/// Of `keys`, least wanted first, those that fit: the last ones of each pool, in the same order.
/// What `pager::plan_warm` and `slot_cache::warm` want. Keys outside the shape are left out.
[[nodiscard]] inline std::vector<expert_key> warm_keys_that_fit(std::span<const expert_key> keys,
                                                                const pool_layout& layout) {
  std::vector<std::int64_t> room;
  for (std::size_t p = 0; p < layout.pools(); ++p)
    room.push_back(layout.at(static_cast<pool_id>(p)).slots);
  std::vector<expert_key> kept;
  for (auto at = keys.size(); at-- > 0;) {
    if (!layout.shape().contains(keys[at])) continue;
    if (room[index_of(layout.pool_of_layer(keys[at].layer))]-- > 0) kept.push_back(keys[at]);
  }
  std::ranges::reverse(kept);
  return kept;
}

/// The most popular keys of each pool, as many as fit, least popular first; ties: the lower key is wanted more.
/// Shape: profile[layers * experts]; a key with a count of 0 is not wanted.
[[nodiscard]] inline std::vector<expert_key> popular_warm_keys(std::span<const double> profile,
                                                               const pool_layout& layout) {
  const auto& shape = layout.shape();
  std::vector<std::size_t> order(std::min(profile.size(), shape.keys()));
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::erase_if(order, [&](std::size_t k) { return !(profile[k] > 0); });
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    return profile[a] != profile[b] ? profile[a] < profile[b] : a > b;
  });
  std::vector<expert_key> keys;
  keys.reserve(order.size());
  for (const auto k : order) keys.push_back(shape.key(k));
  return warm_keys_that_fit(keys, layout);
}

/// What a cache held, to be saved and to start from: `pager::residents()` with the shape it belongs to.
struct residency_snapshot {
  std::int32_t layers = 0;
  std::int32_t experts = 0;
  std::vector<expert_key> keys{};  ///< least wanted first

  /// Little-endian: "HSRS", version 1, layers, experts (32 bits each), count (64), keys (2 x 32), checksum (64).
  [[nodiscard]] std::vector<std::byte> encode() const {
    std::vector<std::byte> out;
    for (const auto word :
         {magic, version, static_cast<std::uint32_t>(layers), static_cast<std::uint32_t>(experts)})
      save_number(word, out);
    save_long(keys.size(), out);
    for (const auto key : keys) {
      save_number(static_cast<std::uint32_t>(key.layer), out);
      save_number(static_cast<std::uint32_t>(key.expert), out);
    }
    save_long(checksum(out), out);
    return out;
  }

  /// Errors: the byte at which the data is not a snapshot, and what is accepted there.
  static result<residency_snapshot> decode(std::span<const std::byte> bytes) {
    const auto refuse = [](std::size_t at, const std::string& accepted) {
      return error{"residency snapshot, byte " + std::to_string(at) + ": accepted: " + accepted};
    };
    if (bytes.size() < header_bytes + 8)
      return refuse(bytes.size(), "at least " + std::to_string(header_bytes + 8) + " bytes");
    if (saved_number(bytes, 0) != magic) return refuse(0, "the letters HSRS");
    if (saved_number(bytes, 4) != version) return refuse(4, "version 1");
    const std::uint64_t layers = saved_number(bytes, 8);
    const std::uint64_t experts = saved_number(bytes, 12);
    if (layers == 0 || experts == 0 ||
        layers * experts > static_cast<std::uint64_t>(geometry::max_keys))
      return refuse(8, "1.." + std::to_string(geometry::max_keys) + " layers x experts");
    const auto fitting = (bytes.size() - header_bytes - 8) / 8;
    if (saved_long(bytes, 16) != fitting || (bytes.size() - header_bytes) % 8 != 0)
      return refuse(16, "the number of keys that the length gives, " + std::to_string(fitting));
    const auto end = bytes.size() - 8;
    if (saved_long(bytes, end) != checksum(bytes.first(end)))
      return refuse(end, "the checksum of what stands before it");
    residency_snapshot out{static_cast<std::int32_t>(layers), static_cast<std::int32_t>(experts)};
    for (std::size_t at = header_bytes; at < end; at += 8) {
      const auto layer = saved_number(bytes, at);
      const auto expert = saved_number(bytes, at + 4);
      if (layer >= layers || expert >= experts) return refuse(at, "a key of the model");
      out.keys.push_back({static_cast<layer_id>(layer), static_cast<expert_id>(expert)});
    }
    return out;
  }

 private:
  static constexpr std::uint32_t magic = 0x53525348;  // "HSRS"
  static constexpr std::uint32_t version = 1;
  static constexpr std::size_t header_bytes = 24;

  static void save_long(std::uint64_t n, std::vector<std::byte>& out) {
    save_number(static_cast<std::uint32_t>(n), out);
    save_number(static_cast<std::uint32_t>(n >> 32U), out);
  }
  static std::uint64_t saved_long(std::span<const std::byte> bytes, std::size_t at) noexcept {
    return saved_number(bytes, at) | std::uint64_t{saved_number(bytes, at + 4)} << 32U;
  }
  /// FNV-1a.
  static std::uint64_t checksum(std::span<const std::byte> bytes) {
    std::uint64_t hash = 0xCBF29CE484222325ULL;
    for (const auto b : bytes) hash = (hash ^ std::to_integer<std::uint64_t>(b)) * 0x100000001B3ULL;
    return hash;
  }
};

}  // namespace hotset
