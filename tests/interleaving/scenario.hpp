// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Caches and backend behaviours that a seed selects.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "random_source.hpp"
#include "tested_cache.hpp"

namespace hotset::interleaving {

inline geometry random_shape(support::random_source& random, std::size_t precisions) {
  geometry shape{.layers = 1 + random.id_below(3),
                 .experts = 5 + random.id_below(6),
                 .top_k = 1 + random.id_below(3),
                 .max_tokens_per_visit = random.one_in(3) ? 1 : 1 + random.id_below(6),
                 .expert_bytes = {100},
                 .lower_precisions = {}};
  for (std::size_t p = 1; p < precisions; ++p) shape.lower_precisions.push_back({100 - 30 * p});
  return shape;
}
/// From just enough for a token to about half of a layer's experts.
inline std::int64_t random_slots(support::random_source& random, const geometry& shape) {
  return shape.top_k + random.id_below(1 + shape.experts / 2);
}
inline pool_layout layout_of_precisions(support::random_source& random, const geometry& shape) {
  std::vector<std::int64_t> slots;
  for (std::size_t p = 0; p < shape.precisions(); ++p) slots.push_back(1 + random.id_below(4));
  while (std::accumulate(slots.begin(), slots.end(), std::int64_t{0}) < shape.top_k) ++slots[0];
  return random.one_in(2) ? pool_layout::shared_by_precision(shape, slots).value()
                          : pool_layout::per_layer_by_precision(shape, slots).value();
}
inline pool_layout random_layout(support::random_source& random, std::size_t precisions) {
  auto shape = random_shape(random, precisions);
  if (precisions > 1) return layout_of_precisions(random, shape);
  const auto layers = static_cast<std::size_t>(shape.layers);
  switch (random.below(4)) {
    case 0: return pool_layout::shared(shape, random_slots(random, shape)).value();
    case 1: return pool_layout::per_layer(shape, random_slots(random, shape)).value();
    case 2: {
      std::vector<std::int64_t> quotas(layers);
      for (auto& quota : quotas) quota = random_slots(random, shape);
      return pool_layout::per_layer(shape, quotas).value();
    }
    default: {
      shape.expert_bytes.resize(layers);
      for (auto& bytes : shape.expert_bytes) bytes = random.one_in(2) ? 100 : 160;
      const auto classes = shape.size_classes();
      std::vector<std::int64_t> slots(
          1 + static_cast<std::size_t>(*std::max_element(classes.begin(), classes.end())));
      for (auto& count : slots) count = random_slots(random, shape);
      return pool_layout::shared_by_size_class(shape, slots).value();
    }
  }
}
inline support::cache_setup random_setup(support::random_source& random, std::size_t precisions) {
  constexpr std::array<std::size_t, 3> most_waiting{256, 4, 1};
  constexpr std::array<std::size_t, 3> most_under_way{64, 2, 1};
  return {
      .layout = random_layout(random, precisions),
      .split = random.one_in(2) ? visit_split::by_token : static_cast<visit_split>(random.below(4)),
      .guard = static_cast<prefetch_guard>(random.below(3)),
      .cache = {.queue = {.most_waiting = most_waiting.at(random.below(3))},
                .most_under_way = most_under_way.at(random.below(3)),
                .log = {}}};
}
/// Some backends behave well, most have a weakness. An idle one does nothing before it must.
inline support::unruly_backend::habits random_habits(support::random_source& random, bool caller,
                                                     bool idle) {
  const auto seldom = [&](std::uint64_t lazily) {
    return random.one_in(2) ? std::uint64_t{0} : 2 + random.below(lazily);
  };
  return {.take_nothing = seldom(12),
          .take_part = seldom(12),
          .fail = seldom(16),
          .refuse_fence = seldom(40),
          .refuse_cancel = seldom(4),
          .pause = idle ? 1 : 1 + random.below(4),
          .caller = caller};
}

}  // namespace hotset::interleaving
