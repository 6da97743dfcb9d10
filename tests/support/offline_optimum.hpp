// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The fewest copies of any policy, by trying all; for traces of at most a dozen keys.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/trace/visit_sequence.hpp"
#include "naive_groups.hpp"

namespace hotset::support {

/// One event of one pool: bits of the keys that it needs at once.
using event_bits = std::uint32_t;

/// Events of each pool: visits, or token groups of visits that do not fit. Keys are numbered over all layers.
inline std::vector<std::vector<event_bits>> events_of(const visit_sequence& visits,
                                                      const pool_layout& layout, bool splits) {
  std::vector<std::vector<event_bits>> pools(layout.pools());
  const auto k = static_cast<std::size_t>(visits.shape().top_k);
  const auto any = [](expert_id id) { return id >= 0; };
  for (std::size_t i = 0; i < visits.size(); ++i) {
    const auto view = visits[i];
    const auto pool = layout.pool_of_layer(view.layer);
    const auto bits_of = [&](id_view<expert_id> ids) {
      event_bits bits = 0;
      for (const auto id : ids)
        if (id >= 0) bits |= 1U << visits.shape().index({view.layer, id});
      return bits;
    };
    auto& events = pools[static_cast<std::size_t>(pool)];
    const auto room = static_cast<std::size_t>(layout.at(pool).slots);
    const auto all = bits_of(view.experts);
    if (!splits || static_cast<std::size_t>(std::popcount(all)) <= room) {
      events.push_back(all);
      continue;
    }
    for (const auto& group : naive_groups(view.experts, k, room, any)) {
      event_bits bits = 0;
      for (const std::size_t token : group) bits |= bits_of(view.experts.subspan(token * k, k));
      events.push_back(bits);
    }
  }
  return pools;
}

/// Fewest copies over all ways to keep keys. `forced`: an event's keys must take slots. Otherwise any `slots` of the
/// resident and used keys stay.
inline std::uint64_t fewest_fills(const std::vector<event_bits>& events, std::size_t slots,
                                  bool forced) {
  std::map<event_bits, std::uint64_t> cost{{0, 0}};
  for (const auto used : events) {
    std::map<event_bits, std::uint64_t> next;
    const auto reach = [&](event_bits state, std::uint64_t fills) {
      const auto [at, isnew] = next.try_emplace(state, fills);
      if (!isnew) at->second = std::min(at->second, fills);
    };
    for (const auto& [state, before] : cost) {
      const auto fills = before + static_cast<std::uint64_t>(std::popcount(used & ~state));
      const auto free = forced ? state & ~used : state | used;
      for (event_bits kept = free;; kept = (kept - 1) & free) {
        const auto after = forced ? kept | used : kept;
        if (static_cast<std::size_t>(std::popcount(after)) <= slots) reach(after, fills);
        if (kept == 0) break;
      }
    }
    cost = std::move(next);
  }
  auto best = std::numeric_limits<std::uint64_t>::max();
  for (const auto& [state, fills] : cost) best = std::min(best, fills);
  return best;
}

/// Fewest copies over all pools of a layout.
inline std::uint64_t fewest_fills(const visit_sequence& visits, const pool_layout& layout,
                                  bool forced) {
  const auto pools = events_of(visits, layout, forced);
  std::uint64_t total = 0;
  for (std::size_t p = 0; p < pools.size(); ++p)
    total += fewest_fills(
        pools[p], static_cast<std::size_t>(layout.at(static_cast<pool_id>(p)).slots), forced);
  return total;
}

}  // namespace hotset::support
