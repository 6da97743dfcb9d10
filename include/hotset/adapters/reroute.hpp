// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Batched rerouting: each token's experts become those of its adapter.
///
/// Rule: out = id, if it is negative; -1, if id >= experts or adapter >= adapters of the map;
///   id, if the token's adapter is negative (the base model); map[adapter][id] otherwise.
/// What is out of range is not passed on: in the virtual weight tensor it may be another adapter's expert.
/// Source: ExpertWeave, section 4.3.
/// Exact: yes, the same at every level. Cost: O(1) per id.

#include <cstdint>
#include <span>

#include "hotset/adapters/redirect_rows.hpp"
#include "hotset/adapters/reroute_kernels.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/platform/compiler.hpp"
#include "hotset/core/status.hpp"

namespace hotset {

/// How a batch went.
struct [[nodiscard]] reroute_result {
  status code = status::ok;
  std::uint64_t refused = 0;  ///< ids out of range; they became -1
};

/// Shape: ids and out [tokens * top_k], adapter_of_token [tokens], negative: the base model. `out` is `ids` or apart
/// from it; in place, ids that stay as they are may be left unwritten. Pre: level <= best_vector_level().
/// Errors: invalid_argument (lengths that do not belong together).
inline reroute_result reroute(redirect_rows map, id_view<expert_id> ids,
                              std::span<const std::int32_t> adapter_of_token,
                              std::span<std::int32_t> out,
                              vector_level level = best_vector_level()) noexcept {
  const auto batch = reroute_kernels::batch_of(map, ids, adapter_of_token, out);
  if (!batch) return {status::invalid_argument, 0};
  return {status::ok, reroute_kernels::run<false>(level, *batch, {})};
}

}  // namespace hotset
