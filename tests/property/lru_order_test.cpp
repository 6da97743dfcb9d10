// SPDX-License-Identifier: Apache-2.0
// For any routing, lru keeps the keys that a list keeps. A failing sequence is shrunk to the shortest that still
// fails.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "hotset/eviction/lru.hpp"
#include "hotset/paging/pager.hpp"

namespace hotset::lru_order_test {
namespace {

const geometry shape{.layers = 2, .experts = 8, .top_k = 2, .max_tokens_per_visit = 2};
constexpr std::size_t ids_of_visit = 4;  ///< all fit into the smallest cache: no visit is split

using routed = std::pair<std::int32_t, std::vector<std::int32_t>>;  ///< a layer and its ids

/// Keys in the order of their last use, the latest last.
class key_list {
 public:
  explicit key_list(std::size_t slots) : slots_(slots) {}

  [[nodiscard]] bool holds(expert_key key) const {
    return std::ranges::find(keys_, key) != keys_.end();
  }
  [[nodiscard]] std::size_t size() const { return keys_.size(); }
  /// Returns how many distinct experts of the visit were resident before it.
  std::size_t visit(const routed& now) {
    std::vector<expert_key> used;  // by last appearance
    for (const auto id : now.second) {
      if (id < 0) continue;
      const expert_key key{layer_id{now.first}, expert_id{id}};
      std::erase(used, key);
      used.push_back(key);
    }
    const auto hits = static_cast<std::size_t>(
        std::ranges::count_if(used, [&](expert_key key) { return holds(key); }));
    for (const auto key : used) std::erase(keys_, key);
    const auto room = slots_ - used.size();
    if (keys_.size() > room)
      keys_.erase(keys_.begin(), keys_.end() - static_cast<std::ptrdiff_t>(room));
    keys_.insert(keys_.end(), used.begin(), used.end());
    return hits;
  }

 private:
  std::size_t slots_;
  std::vector<expert_key> keys_;
};

void expect_the_same(const key_list& expected, const pager<lru>& cache) {
  for (const auto layer : each<layer_id>(shape.layers))
    for (const auto e : each<expert_id>(shape.experts))
      RC_ASSERT((cache.locate({layer, e}) != no_slot) == expected.holds({layer, e}));
}

RC_GTEST_PROP(lru_order, is_that_of_a_list_of_keys, ()) {
  const auto slots = *rc::gen::inRange<std::int64_t>(4, 14);
  const auto visits = *rc::gen::container<std::vector<routed>>(
      rc::gen::pair(rc::gen::inRange<std::int32_t>(0, shape.layers),
                    rc::gen::container<std::vector<std::int32_t>>(
                        ids_of_visit, rc::gen::inRange<std::int32_t>(-1, shape.experts))));
  key_list expected(static_cast<std::size_t>(slots));
  pager<lru> cache({.layout = pool_layout::shared(shape, slots).value()});
  auto plan = cache.make_plan();
  std::uint64_t hits = 0;
  for (std::size_t step = 0; step < visits.size(); ++step) {
    const routing_view view{.layer = layer_id{visits[step].first},
                            .step = static_cast<step_id>(step),
                            .experts = visits[step].second};
    RC_ASSERT(cache.plan(view, plan) == status::ok);
    RC_ASSERT(cache.commit(plan) == status::ok);
    hits += expected.visit(visits[step]);
    expect_the_same(expected, cache);
  }
  RC_ASSERT(cache.stats().hits == hits);
}

}  // namespace
}  // namespace hotset::lru_order_test
