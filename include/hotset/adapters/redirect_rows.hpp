// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Maps one routed id to the expert of its token's adapter. Kernels apply it with one thread for each id.

#include <cstdint>

#include "hotset/core/ids.hpp"
#include "hotset/core/platform/compiler.hpp"

namespace hotset {

/// Expert map as kernels read it. Shape: rows [adapters * experts], see expert_redirect::rows().
struct redirect_rows {
  const expert_id* rows = nullptr;
  std::int32_t adapters = 0;
  std::int32_t experts = 0;
};

/// Returns true if an id or its token's adapter is out of range. The id's entry in the batch becomes -1 and is
/// counted.
[[nodiscard]] HOTSET_HOST_DEVICE constexpr bool is_refused(redirect_rows map, expert_id id,
                                                           std::int32_t adapter) noexcept {
  return number(id) >= 0 && (number(id) >= map.experts || adapter >= map.adapters);
}
/// Pre: !is_refused(map, id, adapter).
[[nodiscard]] HOTSET_HOST_DEVICE constexpr expert_id redirected(redirect_rows map, expert_id id,
                                                                std::int32_t adapter) noexcept {
  if (number(id) < 0 || adapter < 0) return id;
  return map.rows[static_cast<std::int64_t>(adapter) * map.experts + number(id)];
}

}  // namespace hotset
