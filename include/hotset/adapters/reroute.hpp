// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Batched rerouting: replaces each token's experts by those of its adapter.
///
/// Rule: out = id, if the id is negative; -1, if id >= experts or adapter >= adapters of the map; id, if the token's
///   adapter is negative (the base model); map[adapter][id] otherwise. An id out of range becomes -1, because in the
///   virtual weight tensor it may be another adapter's expert.
/// Source: ExpertWeave, section 4.3.
/// Exact: yes.
/// Cost: O(1) per id, in one pass; reads nothing outside the arrays.

#include <cstddef>
#include <cstdint>
#include <span>

#include "hotset/adapters/redirect_rows.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/status.hpp"

namespace hotset {

/// Outcome of a batch.
struct [[nodiscard]] reroute_result {
  status code = status::ok;
  std::uint64_t refused = 0;  ///< ids out of range; they became -1
};

/// Shape: ids and out [tokens * top_k], adapter_of_token [tokens], negative: the base model. `out` is `ids` or does
/// not overlap it. Errors: invalid_argument (array lengths do not match).
inline reroute_result reroute(redirect_rows map, id_view<expert_id> ids,
                              std::span<const std::int32_t> adapter_of_token,
                              std::span<std::int32_t> out) noexcept {
  const auto tokens = adapter_of_token.size();
  const bool belong =
      out.size() == ids.size() && (ids.empty() || (tokens != 0 && ids.size() % tokens == 0));
  if (!belong) return {status::invalid_argument, 0};
  reroute_result done;
  std::size_t i = 0;
  for (std::size_t t = 0; i < ids.size(); ++t)
    for (const auto end = i + ids.size() / tokens; i < end; ++i) {
      const auto id = ids[i];
      const bool refused = is_refused(map, id, adapter_of_token[t]);
      out[i] = number(refused ? no_expert : redirected(map, id, adapter_of_token[t]));
      done.refused += refused ? 1U : 0U;
    }
  return done;
}

}  // namespace hotset
