// SPDX-License-Identifier: Apache-2.0
#include "sim/replay/counted_together.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "hotset/core/platform/assert.hpp"
#include "hotset/eviction/belady.hpp"
#include "hotset/eviction/fifo.hpp"
#include "hotset/eviction/lfu.hpp"
#include "hotset/eviction/lru.hpp"
#include "sim/replay/counting/belady_depths.hpp"
#include "sim/replay/counting/depth_walk.hpp"
#include "sim/replay/counting/fifo_sizes.hpp"
#include "sim/replay/counting/lfu_depths.hpp"
#include "sim/replay/counting/lru_depths.hpp"
#include "sim/replay/counting/size_ladder.hpp"
#include "sim/replay/counting/size_tally.hpp"

namespace hotset::inline v0::sim {

namespace {

using counter = void (*)(const visit_sequence&, const size_ladder&, size_tally&);

template <depth_order Order>
void count_depths(const visit_sequence& visits, const size_ladder& ladder, size_tally& tally) {
  Order order(visits, ladder);
  depth_walk(ladder, order).run(visits, tally);
}
void count_fifo(const visit_sequence& visits, const size_ladder& ladder, size_tally& tally) {
  fifo_sizes(ladder).run(visits, tally);
}

struct known_counter {
  std::string_view eviction;
  counter count;
};
constexpr std::array known_counters{
    known_counter{lru::name, count_depths<lru_depths>},
    known_counter{fifo::name, count_fifo},
    known_counter{lfu::name, count_depths<lfu_depths>},
    known_counter{belady::name, count_depths<belady_depths>},
};

const known_counter* counter_of(std::string_view eviction) {
  const auto* const found =
      std::find_if(known_counters.begin(), known_counters.end(),
                   [&](const known_counter& k) { return k.eviction == eviction; });
  return found == known_counters.end() ? nullptr : found;
}

}  // namespace

bool counts_together(std::string_view eviction) { return counter_of(eviction) != nullptr; }

bool counts_together(const visit_sequence& visits, const pool_layout& layout) {
  // Uses are numbered in 32 bits.
  if (visits.ids().size() >= std::numeric_limits<std::uint32_t>::max()) return false;
  for (const auto pool : each<pool_id>(layout.pools()))
    if (static_cast<std::uint32_t>(layout.at(pool).slots) < visits.widest_union()) return false;
  return true;
}

std::vector<pager_stats> count_together(std::string_view eviction, const visit_sequence& visits,
                                        std::span<const pool_layout* const> layouts) {
  const auto* const known = counter_of(eviction);
  HOTSET_ASSERT(known != nullptr);
  const size_ladder ladder(layouts);
  size_tally tally(ladder);
  known->count(visits, ladder, tally);
  std::vector<pager_stats> out;
  for (std::size_t i = 0; i < layouts.size(); ++i) out.push_back(tally.stats(i));
  return out;
}

}  // namespace hotset::inline v0::sim
