// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Random visits with their map rows: many repeats, ids out of range, rows from all absent to all resident.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "hotset/core/ids.hpp"
#include "random_source.hpp"

namespace hotset::mirror_samples {

struct visit {
  std::vector<expert_id> ids;
  std::vector<slot_id> row;

  [[nodiscard]] std::size_t most_missing() const { return std::min(ids.size(), row.size()); }
};

/// Mostly decode visits of up to 256 experts; sometimes a prefill, or a layer of thousands.
inline visit random_visit(support::random_source& random) {
  visit v;
  const auto experts = random.one_in(64)   ? 1 + random.id_below(8192)
                       : random.one_in(16) ? 1 + random.id_below(3)
                                           : 1 + random.id_below(256);
  const auto count = random.one_in(128) ? random.below(5000)
                     : random.one_in(8) ? random.below(300)
                                        : random.below(40);
  const auto resident_in_8 = random.below(9);
  for (std::int32_t e = 0; e < experts; ++e)
    v.row.push_back(random.below(8) < resident_in_8 ? slot_id{random.id_below(100'000)} : no_slot);
  const bool has_outsiders = random.one_in(2);
  const auto hot =
      random.one_in(2) ? experts : 1 + random.id_below(experts);  // fewer: more repeats
  for (std::size_t i = 0; i < count; ++i) {
    const auto id = random.id_below(hot);
    if (!has_outsiders || !random.one_in(8)) {
      v.ids.push_back(expert_id{id});
    } else {
      switch (random.below(4)) {
        case 0: v.ids.push_back(no_expert); break;
        case 1: v.ids.push_back(expert_id{experts}); break;
        case 2: v.ids.push_back(expert_id{std::numeric_limits<std::int32_t>::min()}); break;
        default: v.ids.push_back(expert_id{std::numeric_limits<std::int32_t>::max()}); break;
      }
    }
  }
  return v;
}

}  // namespace hotset::mirror_samples
