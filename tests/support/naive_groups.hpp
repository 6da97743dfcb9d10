// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The greedy rule for token groups, with sets.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"

namespace hotset::support {

using token_lists = std::vector<std::vector<std::uint32_t>>;
using expert_set = std::set<expert_id>;

/// One token's distinct experts that need slots.
inline expert_set needs_of(id_view<expert_id> ids, std::size_t top_k, std::size_t token,
                           const std::function<bool(expert_id)>& needs_slot) {
  expert_set out;
  for (const auto id : ids.subspan(token * top_k, top_k))
    if (needs_slot(id)) out.insert(id);
  return out;
}

/// Empty if one token alone does not fit. `needs_slot` also gets ids that name no expert.
inline token_lists naive_groups(id_view<expert_id> ids, std::size_t top_k, std::size_t room,
                                const std::function<bool(expert_id)>& needs_slot) {
  const auto tokens = ids.size() / top_k;
  std::vector<expert_set> needs;
  for (std::size_t t = 0; t < tokens; ++t) {
    needs.push_back(needs_of(ids, top_k, t, needs_slot));
    if (needs.back().size() > room) return {};
  }
  std::vector<bool> placed(tokens, false);
  token_lists groups;
  while (true) {
    const auto first = std::find(placed.begin(), placed.end(), false);
    if (first == placed.end()) return groups;
    groups.emplace_back();
    expert_set held;
    auto next = static_cast<std::size_t>(first - placed.begin());
    while (next < tokens) {
      placed[next] = true;
      groups.back().push_back(static_cast<std::uint32_t>(next));
      held.insert(needs[next].begin(), needs[next].end());
      std::size_t fewest = room - held.size() + 1;
      next = tokens;
      for (std::size_t t = 0; t < tokens; ++t) {
        if (placed[t]) continue;
        const auto brings = static_cast<std::size_t>(
            std::ranges::count_if(needs[t], [&](expert_id e) { return held.count(e) == 0; }));
        if (brings < fewest) {
          fewest = brings;
          next = t;
        }
      }
    }
    std::sort(groups.back().begin(), groups.back().end());
  }
}

}  // namespace hotset::support
