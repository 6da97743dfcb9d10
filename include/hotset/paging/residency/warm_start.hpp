// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Keys to fill a cache before its first use: those of an earlier run, or the most popular ones.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/predict/saved_file.hpp"

namespace hotset {

/// Keeps the last keys of each pool, as many as fit, in the same order. `keys` are sorted least wanted first, as for
/// `pager::plan_warm` and `slot_cache::warm`. Drops keys outside the shape.
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

/// Returns the most popular keys of each pool that fit, least popular first. Ties: the lower key counts as more
/// popular. Shape: profile[layers * experts]. Keys with a count of 0 are dropped.
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

/// Saved contents of a cache, for a warm start: `pager::residents()` and the shape.
struct residency_snapshot {
  std::int32_t layers = 0;
  std::int32_t experts = 0;
  std::vector<expert_key> keys{};  ///< least wanted first

  /// Little-endian: "HSRS", version 1, layers, experts (32 bits each), count (64), keys (2 x 32), checksum (64).
  [[nodiscard]] std::vector<std::byte> encode() const {
    detail::saved_writer out(kind, 6 + 2 * keys.size());
    out.add(layers);
    out.add(experts);
    out.add_long(keys.size());
    for (const auto key : keys) {
      out.add(key.layer);
      out.add(key.expert);
    }
    out.add_checksum();
    return std::move(out).take();
  }

  /// Errors: the first invalid part of the data, and the accepted value.
  static result<residency_snapshot> decode(std::span<const std::byte> bytes) {
    constexpr auto most_keys = static_cast<std::uint64_t>(geometry::max_keys);
    const detail::saved_reader saved(bytes);
    if (!saved.is(kind, 6))
      return error{
          "not a residency snapshot, accepted: the letters HSRS, version 1 and 24 bytes or more"};
    const std::uint64_t layers = saved[0];
    const std::uint64_t experts = saved[1];
    if (layers == 0 || experts == 0 || layers * experts > most_keys)
      return refusal("a residency snapshot of ", layers, " layers x ", experts,
                     " experts, accepted: 1..", most_keys);
    const auto count = saved.whole_long(2);
    if (count > most_keys)
      return refusal("a residency snapshot of ", count, " keys, accepted: at most ", most_keys);
    if (auto bad = saved.check_count(6 + 2 * count, std::to_string(count) + " keys"))
      return *std::move(bad);
    if (!saved.ends_with_checksum())
      return error{
          "the checksum does not match the residency snapshot, accepted: the checksum of its "
          "bytes"};
    residency_snapshot out{static_cast<std::int32_t>(layers), static_cast<std::int32_t>(experts)};
    for (std::size_t at = 4; at < 4 + 2 * count; at += 2) {
      if (saved[at] >= layers || saved[at + 1] >= experts)
        return refusal("key ", out.keys.size(), " of a residency snapshot is layer ", saved[at],
                       ", expert ", saved[at + 1], ", accepted: a key of the model");
      out.keys.push_back({static_cast<layer_id>(saved[at]), static_cast<expert_id>(saved[at + 1])});
    }
    return out;
  }

 private:
  static constexpr detail::file_kind kind{'H', 'S', 'R', 'S', 1, 0, 0, 0};
};

}  // namespace hotset
