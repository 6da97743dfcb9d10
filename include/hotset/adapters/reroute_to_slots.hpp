// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Batched rerouting of adapters that are paged: each token's experts become the slots of its adapter's, in one pass.
///
/// Rule: out = slots[e] for what reroute makes of an id, e; no_slot, if e is negative or past the row.
/// Exact: yes, equal to reroute and then the look-up, at every level. Cost: O(1) per id.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "hotset/adapters/redirect_rows.hpp"
#include "hotset/adapters/reroute.hpp"
#include "hotset/adapters/reroute_kernels.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/platform/compiler.hpp"
#include "hotset/core/status.hpp"

namespace hotset {

/// Shape: slots [experts of the virtual weight tensor], a layer's row of a slot_map, at most 2^31 - 1; the rest as reroute
/// has it. `out` is apart from `ids`. Pre: level <= best_vector_level().
/// Returns: `refused` as reroute counts it; an expert that is absent is not refused.
/// Errors: invalid_argument (lengths that do not belong together, or a row that is too long).
inline reroute_result reroute_to_slots(redirect_rows map, std::span<const slot_id> slots,
                                       id_view<expert_id> ids,
                                       std::span<const std::int32_t> adapter_of_token,
                                       std::span<std::int32_t> out,
                                       vector_level level = best_vector_level()) noexcept {
  constexpr std::size_t most = std::numeric_limits<std::int32_t>::max();
  const auto batch = reroute_kernels::batch_of(map, ids, adapter_of_token, out);
  if (!batch || slots.size() > most) return {status::invalid_argument, 0};
  const reroute_kernels::slot_row row{slots.data(), static_cast<std::int32_t>(slots.size())};
  return {status::ok, reroute_kernels::run<true>(level, *batch, row)};
}

}  // namespace hotset
