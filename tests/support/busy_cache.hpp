// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Random visits to a slot_cache, some larger than it, with speculation and invalidation between them.

#include <cstdint>
#include <vector>

#include "hotset/core/forecast.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/core/status.hpp"
#include "hotset/core/visit_event.hpp"
#include "hotset/paging/visit/visit_plan.hpp"
#include "random_source.hpp"

namespace hotset::support {

struct busy_walk {
  std::int64_t visits = 0;
  std::int32_t routed = 0;               ///< experts 0..routed-1 and -1 are routed
  std::uint64_t invalidate_one_in = 40;  ///< visits
};

/// If one expert of a batch is missing, the whole batch fails. If a visit already relied on another of its experts,
/// the next call reports it once; the call after that must succeed.
template <class Call>
status told_once(Call call) {
  const auto first = call();
  return first == status::fill_failed ? call() : first;
}

/// Calls `read(layer)` while each group is open, to enqueue reads of its slots, and `check()` after every visit.
/// Returns the first status other than ok.
template <class Cache, class Visit, class Stream, class Read, class Check>
status walk(Cache& cache, Visit& visit, Stream& stream, random_source& random,
            const busy_walk& setup, Read read, Check check) {
  const auto& shape = cache.pager().layout().shape();
  const auto most = static_cast<std::uint64_t>(shape.max_tokens_per_visit);
  std::vector<expert_id> ids;
  for (std::int64_t n = 0; n < setup.visits; ++n) {
    const auto layer = static_cast<layer_id>(n % shape.layers);
    const auto step = static_cast<step_id>(n / shape.layers);
    const auto tokens = 1 + random.below(random.one_in(4) ? most : 2);
    ids.resize(tokens * static_cast<std::uint64_t>(shape.top_k));
    for (auto& id : ids) id = expert_id{random.id_below(setup.routed + 1) - 1};
    const routing_view view{.layer = layer, .step = step, .experts = ids};
    auto now = told_once(
        [&] { return cache.serve(view, stream, visit, [&](const visit_group&) { read(layer); }); });
    if (now != status::ok) return now;
    if (random.one_in(2)) {
      std::vector<prefetch_request> wanted;
      for (int p = 0; p < 3; ++p)
        wanted.push_back({{layer_id{(number(layer) + 1) % shape.layers},
                           expert_id{random.id_below(shape.experts)}},
                          step});
      const visit_context context{.layer = layer, .step = step};
      now = told_once([&] { return cache.prefetch(context, wanted, stream); });
      if (now != status::ok) return now;
    }
    if (random.one_in(setup.invalidate_one_in)) {
      now = told_once([&] { return cache.invalidate(layer); });
      if (now != status::ok) return now;
    }
    check();
  }
  return status::ok;
}

}  // namespace hotset::support
