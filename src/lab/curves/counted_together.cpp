// SPDX-License-Identifier: Apache-2.0
#include "lab/curves/counted_together.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include "hotset/core/platform/assert.hpp"
#include "hotset/eviction/belady.hpp"
#include "hotset/eviction/fifo.hpp"
#include "hotset/eviction/lfu.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/eviction/similar_steps.hpp"
#include "hotset/eviction/two_rate.hpp"
#include "hotset/registry/parameters.hpp"
#include "lab/curves/belady_depths.hpp"
#include "lab/curves/depth_walk.hpp"
#include "lab/curves/fifo_sizes.hpp"
#include "lab/curves/lfu_depths.hpp"
#include "lab/curves/lru_depths.hpp"
#include "lab/curves/next_use_sizes.hpp"
#include "lab/curves/size_ladder.hpp"
#include "lab/curves/size_tally.hpp"

namespace hotset::lab {

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

/// What a policy goes by that orders by next_use_values; nothing of another one, or where its parameters are wrong.
std::optional<next_use_values::config> values_of(std::string_view eviction) {
  const auto spec = parse_policy(eviction);
  if (!spec) return std::nullopt;
  parameters from(*spec);
  std::optional<next_use_values::config> out;
  if (spec->name == similar_steps::name) out = similar_steps::config::read(from).values();
  if (spec->name == two_rate::name) out = two_rate::config::read(from).values();
  return from.finish() ? std::nullopt : out;
}

/// Uses are numbered in 32 bits.
bool can_number(const visit_sequence& visits) {
  return visits.ids().size() < std::numeric_limits<std::uint32_t>::max();
}
bool splits_visits(const visit_sequence& visits, const pool_layout& layout) {
  for (const auto pool : each<pool_id>(layout.pools()))
    if (static_cast<std::uint32_t>(layout.at(pool).slots) < visits.widest_union()) return true;
  return false;
}

std::vector<size_count> count(const known_counter& known, const visit_sequence& visits,
                              std::span<const pool_layout* const> layouts) {
  const size_ladder ladder(layouts);
  size_tally tally(ladder);
  known.count(visits, ladder, tally);
  std::vector<size_count> out;
  for (std::size_t i = 0; i < layouts.size(); ++i) out.push_back({tally.stats(i)});
  return out;
}
std::vector<size_count> replay(const next_use_values::config& by, const visit_sequence& visits,
                               std::span<const pool_layout* const> layouts) {
  next_use_sizes sizes(visits.shape(), layouts, by);
  sizes.run(visits);
  std::vector<size_count> out;
  for (std::size_t i = 0; i < layouts.size(); ++i)
    out.push_back({sizes.stats(i), sizes.decision_hash(i)});
  return out;
}

}  // namespace

bool counts_together(std::string_view eviction) {
  return counter_of(eviction) != nullptr || has_pagers(eviction);
}

bool has_pagers(std::string_view eviction) { return values_of(eviction).has_value(); }

bool counts_together(std::string_view eviction, const visit_sequence& visits,
                     const pool_layout& layout) {
  if (splits_visits(visits, layout)) return false;
  if (counter_of(eviction) != nullptr) return can_number(visits);
  const auto by = values_of(eviction);
  return by && next_use_sizes::suits(layout) && !by->validate(visits.shape());
}

std::vector<size_count> count_together(std::string_view eviction, const visit_sequence& visits,
                                       std::span<const pool_layout* const> layouts) {
  if (const auto* const known = counter_of(eviction)) return count(*known, visits, layouts);
  const auto by = values_of(eviction);
  HOTSET_ASSERT(by.has_value());
  return replay(*by, visits, layouts);
}

}  // namespace hotset::lab
