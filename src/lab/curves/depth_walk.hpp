// SPDX-License-Identifier: Apache-2.0
#pragma once
/// One walk over the visits for all sizes of a policy whose smaller caches hold nothing that its larger ones do not.
///
/// Rule: each key has a depth: how many of the sizes, the smallest first, do not hold it. A use is a miss of just those, and puts
///       the key at depth 0. Where the keys above a depth are more than a size has slots, the lowest of them that the
///       visit does not use goes one deeper: that is the size's victim.
/// Source: Mattson et al. 1970, with a visit in the place of a reference: its experts are judged before any of them moves.
/// Cost: O(1) for a use that all sizes hold; else O(victims), beside what the order costs. Memory: 9 bytes per key.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/trace/visit_sequence.hpp"
#include "lab/curves/distinct_experts.hpp"
#include "lab/curves/size_ladder.hpp"
#include "lab/curves/size_tally.hpp"
#include "lab/progress.hpp"

namespace hotset::lab {

/// In which order the keys of a depth go one deeper. Keys are numbered as in geometry::index.
template <class Order>
concept depth_order = requires(Order order, pool_id pool, std::uint32_t key, std::size_t depth,
                               std::span<const std::uint32_t> coming,
                               std::span<std::uint32_t> leaving) {
  /// The visit uses a key, which stood at that depth, or nowhere. It is not to leave depth 0 before `end_visit`.
  order.use(pool, key, depth);
  /// Takes keys in from the depth above, lowest first, and writes the lowest of all, lowest first.
  order.pass_on(pool, depth, coming, leaving);
  order.end_visit(pool, depth);  // so many distinct experts
};

template <class Order>
class depth_walk {
 public:
  /// Of a key that no visit has used yet.
  static constexpr std::uint8_t unused = std::numeric_limits<std::uint8_t>::max();
  static_assert(size_ladder::most_sizes < unused);

  depth_walk(const size_ladder& ladder, Order& order)
      : ladder_(ladder),
        order_(order),
        sizes_(ladder.sizes()),
        depths_(ladder.shape().keys(), unused),
        left_(ladder.shape().keys()),
        held_(ladder.pools() * sizes_),
        found_(sizes_),
        misses_(sizes_),
        missing_(ladder.shape().distinct_per_visit()),
        passing_(missing_.size()),
        passed_(missing_.size()) {}

  void run(const visit_sequence& visits, size_tally& tally) {
    distinct_experts distinct(visits.shape());
    progress told(visits.size() * sizes_);
    for (std::size_t i = 0; i < visits.size(); ++i) {
      told.at(i * sizes_);
      const auto view = visits[i];
      const auto experts = distinct.of(view.experts);
      judge(view, experts, tally);
      tally.visit(view, experts.size(), distinct.ignored(), misses_);
      const auto pool = ladder_.pool_of(view.layer);
      if (misses_.front() != 0) settle(pool, static_cast<std::uint32_t>(view.step));
      order_.end_visit(pool, experts.size());
    }
  }

 private:
  /// When a key last left sizes: in which step, and from which size on.
  struct departure {
    std::uint32_t step = std::numeric_limits<std::uint32_t>::max();
    std::uint32_t first = 0;
  };

  void judge(const routing_view& view, std::span<const expert_id> experts,
             size_tally& tally) noexcept {
    const auto pool = ladder_.pool_of(view.layer);
    const auto first = index_of(view.layer) * ladder_.shape().expert_count();
    std::size_t missing = 0;
    for (const auto expert : experts) {
      const auto key = static_cast<std::uint32_t>(first + index_of(expert));
      const auto depth = depths_[key];
      missing_[missing] = key;
      missing += depth != 0 ? 1U : 0U;
      order_.use(pool, key, depth);
    }
    std::fill(misses_.begin(), misses_.end(), 0U);
    if (missing == 0) return;
    for (const auto key : std::span(missing_).first(missing)) count_miss(view, pool, key, tally);
    // A size misses what is deeper than it.
    std::uint32_t deeper = 0;
    for (auto i = sizes_; i-- > 0;) misses_[i] = deeper += std::exchange(found_[i], 0U);
  }
  void count_miss(const routing_view& view, pool_id pool, std::uint32_t key,
                  size_tally& tally) noexcept {
    const auto depth = std::min<std::size_t>(depths_[key], sizes_);
    if (depths_[key] == unused) tally.first_use(pool);
    ++found_[depth - 1];
    depths_[key] = 0;
    if (left_[key].step != static_cast<std::uint32_t>(view.step)) return;
    for (auto i = std::size_t{left_[key].first}; i < depth; ++i) tally.collide(view.layer, i);
  }

  /// Lets go of what the sizes have no room for.
  void settle(pool_id pool, std::uint32_t step) noexcept {
    const auto slots = ladder_.slots(pool);
    const auto held = std::span(held_).subspan(index_of(pool) * sizes_, sizes_);
    std::size_t coming = 0;
    for (std::size_t i = 0; i < sizes_ && misses_[i] + coming != 0; ++i) {
      const auto wanted = held[i] + misses_[i];
      held[i] = std::min(wanted, slots[i]);
      const auto leaving = std::span(passed_).first(wanted - held[i]);
      order_.pass_on(pool, i, std::span<const std::uint32_t>(passing_).first(coming), leaving);
      for (const auto key : leaving) leave(key, i, step);
      coming = leaving.size();
      std::swap(passing_, passed_);
    }
  }
  void leave(std::uint32_t key, std::size_t size, std::uint32_t step) noexcept {
    depths_[key] = static_cast<std::uint8_t>(size + 1);
    auto& left = left_[key];
    // Sizes are left from the smallest on: below the first, the key was used again since.
    const auto from = static_cast<std::uint32_t>(size);
    left.first = left.step == step ? std::min(left.first, from) : from;
    left.step = step;
  }

  const size_ladder& ladder_;
  Order& order_;
  std::size_t sizes_;
  std::vector<std::uint8_t> depths_;   // [keys]
  std::vector<departure> left_;        // [keys]
  std::vector<std::uint32_t> held_;    // [pools][sizes] keys
  std::vector<std::uint32_t> found_;   // of the visit, by depth - 1
  std::vector<std::uint32_t> misses_;  // of the visit, by size
  std::vector<std::uint32_t> missing_, passing_, passed_;
};

}  // namespace hotset::lab
