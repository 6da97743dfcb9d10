// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The order of belady: of each depth, the key that is used again furthest in the future goes deeper.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/core/platform/compiler.hpp"
#include "hotset/eviction/order/sparse_bits.hpp"
#include "hotset/trace/visit_sequence.hpp"
#include "lab/curves/distinct_experts.hpp"
#include "lab/curves/size_ladder.hpp"

namespace hotset::lab {

/// The uses of each pool are numbered from its last one on, so that the furthest has the lowest number. A depth is the set of uses
/// that its keys wait for; those that are past stay in it, behind all others. Which goes first of keys that wait for
/// the same visit, or for none, changes no count.
/// Cost: one walk to number the uses; then O(1) for each use and each key that goes deeper, and 1 / 4096 of the uses
/// between those. Memory: 8 bytes per use, and a bit per use and size.
class belady_depths {
 public:
  belady_depths(const visit_sequence& visits, const size_ladder& ladder)
      : sizes_(ladder.sizes()), pools_(ladder.pools()), upcoming_(ladder.shape().keys(), none) {
    reserve(visits, ladder);
    number_uses(visits, ladder);
    for (const auto& pool : pools_)
      for (std::size_t i = 0; i < sizes_; ++i) waiting_.emplace_back(pool);
  }

  void use(pool_id, std::uint32_t, std::size_t) noexcept {}
  void pass_on(pool_id pool, std::size_t depth, std::span<const std::uint32_t> coming,
               std::span<std::uint32_t> leaving) {
    auto& waits = waits_of(pool, depth);
    for (const auto key : coming) waits.add(key, upcoming_[key]);
    for (auto& key : leaving) {
      const auto use = waits.take(key);
      if (use != none) key = keys_[use];
      if (depth == 0) upcoming_[key] = use;
    }
  }
  /// Only now may the visit's own keys be found at depth 0.
  void end_visit(pool_id pool, std::size_t experts) {
    auto& waits = waits_of(pool, 0);
    for (auto& next = pools_[pool].next; experts != 0; --experts) {
      const auto use = following_[--next];
      if (use == none) {
        waits.add(keys_[next], none);
        continue;
      }
      // Far away, and read when the key leaves: those that wait longer than the last that did soon will.
      if (waits.is_beyond_taken(use)) fetch_soon(&keys_[use]);
      waits.add(0, use);
    }
  }

 private:
  static constexpr auto none = std::numeric_limits<std::uint32_t>::max();

  /// The uses of a pool: [first, end), of which [first, next) are to come.
  struct use_range {
    std::uint32_t first = 0, next = 0, end = 0;
  };
  /// What the keys of one depth wait for.
  class waiting_uses {
   public:
    explicit waiting_uses(const use_range& range)
        : first_(range.first), end_(range.end - range.first), furthest_(end_), uses_(end_) {}

    /// A key that waits for no use is kept itself.
    void add(std::uint32_t key, std::uint32_t use) {
      if (use == none) return never_.push_back(key);
      uses_.set(use - first_);
      furthest_ = std::min<std::size_t>(furthest_, use - first_);
    }
    /// Gives up a use, or a key that waits for none, and says so. Pre: there is one.
    std::uint32_t take(std::uint32_t& key) noexcept {
      if (!never_.empty()) {
        key = never_.back();
        never_.pop_back();
        return none;
      }
      furthest_ = uses_.next(furthest_, end_);
      uses_.reset(furthest_);
      taken_ = first_ + static_cast<std::uint32_t>(furthest_);
      return taken_;
    }
    [[nodiscard]] bool is_beyond_taken(std::uint32_t use) const noexcept { return use < taken_; }

   private:
    std::uint32_t first_;
    std::size_t end_;
    std::size_t furthest_;        // no use in the set is below
    std::uint32_t taken_ = none;  // the last use that was given up
    sparse_bits uses_;
    std::vector<std::uint32_t> never_;  // keys
  };

  [[nodiscard]] waiting_uses& waits_of(pool_id pool, std::size_t depth) noexcept {
    return waiting_[index_of(pool) * sizes_ + depth];
  }

  /// Room for the uses of each pool, side by side.
  void reserve(const visit_sequence& visits, const size_ladder& ladder) {
    per_pool<std::uint32_t> counts(std::vector<std::uint32_t>(ladder.pools()));
    const auto most = static_cast<std::uint32_t>(ladder.shape().expert_count());
    for (const auto& visit : visits.visits())
      counts[ladder.pool_of(visit.layer)] += std::min(visit.count, most);
    std::uint32_t end = 0;
    for (const auto pool : pools_.ids()) {
      pools_[pool].first = end;
      end += counts[pool];
      pools_[pool].next = pools_[pool].end = end;
    }
    keys_.resize(end);
    following_.resize(end);
  }
  void number_uses(const visit_sequence& visits, const size_ladder& ladder) {
    distinct_experts distinct(visits.shape());
    std::vector<std::uint32_t> last(upcoming_.size(), none);
    for (const auto& visit : visits.visits()) {
      auto& next = pools_[ladder.pool_of(visit.layer)].next;
      const auto first = index_of(visit.layer) * ladder.shape().expert_count();
      for (const auto expert : distinct.of(visits.ids().subspan(visit.offset, visit.count))) {
        const auto key = static_cast<std::uint32_t>(first + index_of(expert));
        --next;
        keys_[next] = key;
        following_[next] = none;
        if (last[key] != none) following_[last[key]] = next;
        last[key] = next;
      }
    }
    for (auto& pool : pools_) pool.next = pool.end;
  }

  std::size_t sizes_;
  per_pool<use_range> pools_;
  std::vector<std::uint32_t> upcoming_;   // [keys] use, of those that left depth 0
  std::vector<std::uint32_t> keys_;       // [uses]
  std::vector<std::uint32_t> following_;  // [uses] the next one of the same key
  std::vector<waiting_uses> waiting_;     // [pools][sizes]
};

}  // namespace hotset::lab
