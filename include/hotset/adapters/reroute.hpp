// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Batched rerouting: each token's experts become those of its adapter.
///
/// Rule: out = id, if it is negative; -1, if id >= experts or adapter >= adapters of the map;
///   id, if the token's adapter is negative (the base model); map[adapter][id] otherwise.
/// What is out of range is not passed on: in the virtual weight tensor it may be another adapter's expert.
/// Source: ExpertWeave, section 4.3.
/// Exact: yes. Cost: O(1) per id.

#include <cstddef>
#include <cstdint>
#include <span>

#include "hotset/core/host_device.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/status.hpp"

namespace hotset::inline v0 {

/// The expert map as kernels see it. Shape: rows [adapters * experts], as expert_redirect has them.
struct redirect_rows {
  const expert_id* rows = nullptr;
  std::int32_t adapters = 0;
  std::int32_t experts = 0;
};

/// True if an id of a token is out of range: its place in the batch becomes -1 and is counted.
[[nodiscard]] HOTSET_HOST_DEVICE constexpr bool is_refused(redirect_rows map, expert_id id,
                                                           std::int32_t adapter) noexcept {
  return id >= 0 && (id >= map.experts || adapter >= map.adapters);
}
/// Pre: !is_refused(map, id, adapter).
[[nodiscard]] HOTSET_HOST_DEVICE constexpr expert_id redirected(redirect_rows map, expert_id id,
                                                                std::int32_t adapter) noexcept {
  if (id < 0 || adapter < 0) return id;
  return map.rows[static_cast<std::int64_t>(adapter) * map.experts + id];
}

struct reroute_result {
  status code = status::ok;
  std::uint64_t refused = 0;  ///< ids out of range; they became -1
};

/// Shape: ids and out [tokens * top_k], adapter_of_token [tokens], negative: the base model. `out` may be `ids`.
/// Errors: invalid_argument (lengths that do not belong together).
inline reroute_result reroute(redirect_rows map, std::span<const expert_id> ids,
                              std::span<const std::int32_t> adapter_of_token,
                              std::span<expert_id> out) noexcept {
  const auto tokens = adapter_of_token.size();
  if (out.size() != ids.size() || (tokens == 0 ? !ids.empty() : ids.size() % tokens != 0))
    return {status::invalid_argument, 0};
  reroute_result done;
  const auto top_k = tokens == 0 ? 0 : ids.size() / tokens;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto adapter = adapter_of_token[i / top_k];
    const bool refused = is_refused(map, ids[i], adapter);
    done.refused += refused ? 1U : 0U;
    out[i] = refused ? no_expert : redirected(map, ids[i], adapter);
  }
  return done;
}

}  // namespace hotset::inline v0
