// SPDX-License-Identifier: Apache-2.0
#include "hotset/eviction/order/coldest_slots.hpp"

#include <algorithm>
#include <limits>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "random_source.hpp"
#include "written_ids.hpp"

namespace hotset::coldest_slots_test {
namespace {

/// Heat that decreases from step to step.
struct cooling {
  std::vector<double> heat;
  std::vector<step_id> since;

  [[nodiscard]] double score(slot_id slot, step_id step) const {
    const auto last = since[index_of(slot)];
    return heat[index_of(slot)] / static_cast<double>(1 + (step > last ? step - last : 0));
  }
  [[nodiscard]] double nearly(slot_id slot, step_id step) const { return score(slot, step); }
};

class coldest_slots_of {
 public:
  coldest_slots_of(const pool_layout& layout, std::uint64_t seed)
      : layout_(layout), random_(seed), order_(layout), pool_of_(layout.slots(), pool_id{-1}) {
    scores_.heat.assign(layout.slots(), vacant);
    scores_.since.assign(layout.slots(), 0);
    positions_.assign(layout.slots(), 0);
    for (const auto s : each<slot_id>(layout.slots()))
      if (!random_.one_in(6)) fill(layout.pool_of_slot(s), s);
  }
  void run(bool lends) {
    for (; step_ < 120; step_ += random_.one_in(9) ? 3U : 1U)
      for (int n = 0; n < 12 && !testing::Test::HasFailure(); ++n) change(lends);
  }

 private:
  static constexpr double vacant = std::numeric_limits<double>::infinity();

  void fill(pool_id pool, slot_id slot) {
    order_.settle(pool, slot);
    pool_of_[slot] = pool;
    scores_.heat[index_of(slot)] = 0;
    use(slot);
  }
  /// Many ties.
  void use(slot_id slot) {
    scores_.heat[index_of(slot)] = static_cast<double>(random_.below(6));
    scores_.since[index_of(slot)] = step_;
    positions_[index_of(slot)] = ++clock_;
    order_.use(pool_of_[slot], slot, scores_);
  }
  void change(bool lends) {
    const slot_id slot{random_.id_below(static_cast<std::int32_t>(layout_.slots()))};
    const slot_id other{random_.id_below(static_cast<std::int32_t>(layout_.slots()))};
    if (pool_of_[slot] < 0)
      fill(lends ? pool_id{random_.id_below(static_cast<std::int32_t>(layout_.pools()))}
                 : layout_.pool_of_slot(slot),
           slot);
    else if (random_.one_in(5))
      vacate(slot);
    else if (pool_of_[other] < 0 && (lends || layout_.pool_of_slot(other) == pool_of_[slot]))
      move(slot, other);
    else
      use(slot);
    for (const auto p : each<pool_id>(layout_.pools()))
      if (random_.one_in(3)) choose(p);
  }
  void vacate(slot_id slot) {
    scores_.heat[index_of(slot)] = vacant;
    pool_of_[slot] = pool_id{-1};
    order_.vacate(slot);
  }
  void move(slot_id from, slot_id to) {
    scores_.heat[index_of(to)] = scores_.heat[index_of(from)];
    scores_.since[index_of(to)] = scores_.since[index_of(from)];
    scores_.heat[index_of(from)] = vacant;
    positions_[index_of(to)] = positions_[index_of(from)];
    pool_of_[to] = pool_of_[from];
    pool_of_[from] = pool_id{-1};
    order_.move(from, to);
  }
  void choose(pool_id pool) {
    slot_mask eligible(layout_.slots());
    std::vector<std::tuple<double, std::uint64_t, slot_id>> sorted;
    for (const auto s : each<slot_id>(layout_.slots())) {
      eligible.assign(s, !random_.one_in(5));
      if (pool_of_[s] == pool && eligible.test(s))
        sorted.emplace_back(scores_.score(s, step_), positions_[index_of(s)], s);
    }
    std::ranges::sort(sorted);
    std::vector<slot_id> out(random_.one_in(5) ? layout_.slots() : random_.below(12), no_slot);
    const auto wanted = std::min(out.size(), sorted.size());
    out.resize(order_.select(pool, step_, eligible, out, scores_));
    ASSERT_EQ(out.size(), wanted);
    for (std::size_t n = 0; n < wanted; ++n) ASSERT_EQ(out[n], std::get<2>(sorted[n])) << n;
  }

  const pool_layout& layout_;
  support::random_source random_;
  coldest_slots order_;
  per_slot<pool_id> pool_of_;
  cooling scores_;
  std::vector<std::uint64_t> positions_;
  std::uint64_t clock_ = 0;
  step_id step_ = 0;
};

constexpr geometry shape{.layers = 5, .experts = 80, .top_k = 2};

// A small pool can start at any offset of the mask's words.
TEST(coldest_slots, agrees_with_sorting_all_slots) {
  for (const auto& layout :
       {pool_layout::per_layer(shape, 37).value(), pool_layout::per_layer(shape, 70).value(),
        pool_layout::shared(shape, 256).value(), pool_layout::shared(shape, 390).value()})
    for (std::uint64_t seed = 1; seed <= 4; ++seed) coldest_slots_of(layout, seed).run(false);
}
TEST(coldest_slots, agrees_with_sorting_after_slots_change_pools) {
  const auto layout = pool_layout::per_layer({.layers = 5, .experts = 400, .top_k = 2}, 37).value();
  for (std::uint64_t seed = 1; seed <= 4; ++seed) coldest_slots_of(layout, seed).run(true);
}

}  // namespace
}  // namespace hotset::coldest_slots_test
