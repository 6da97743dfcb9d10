// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The order of lru: of each depth, the key that was used longest ago goes deeper.

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/trace/visit_sequence.hpp"
#include "sim/replay/counting/size_ladder.hpp"

namespace hotset::inline v0::sim {

/// A log of uses per depth. What was used again since stays where it is, and is passed over.
/// Cost: O(1) for each use and each key that goes deeper, amortised. Memory: 16 bytes per slot, 4 per key.
class lru_depths {
 public:
  lru_depths(const visit_sequence&, const size_ladder& ladder)
      : sizes_(ladder.sizes()), last_(ladder.shape().keys()) {
    for (const auto pool : each<pool_id>(ladder.pools()))
      for (std::size_t i = 0; i < sizes_; ++i)
        logs_.emplace_back(ladder.gap(pool, i) + 2 * ladder.shape().distinct_per_visit());
  }

  void use(pool_id pool, std::uint32_t key, std::size_t) noexcept {
    last_[key] = ++clock_;
    log_of(pool, 0).push({key, clock_}, last_);
  }
  void pass_on(pool_id pool, std::size_t depth, std::span<const std::uint32_t> coming,
               std::span<std::uint32_t> leaving) noexcept {
    auto& log = log_of(pool, depth);
    for (const auto key : coming) log.push({key, last_[key]}, last_);
    log.pop(leaving, last_);
  }
  void end_visit(pool_id, std::size_t) noexcept {}

 private:
  struct use_entry {
    std::uint32_t key = 0, at = 0;
  };
  /// Entries [first_, end_) in order of use; one whose key was used later is out of date.
  class use_log {
   public:
    explicit use_log(std::size_t most_keys) : entries_(2 * most_keys) {}

    void push(use_entry entry, std::span<const std::uint32_t> last) noexcept {
      if (end_ == entries_.size()) keep_current(last);
      entries_[end_++] = entry;
    }
    /// Pre: so many are up to date.
    void pop(std::span<std::uint32_t> out, std::span<const std::uint32_t> last) noexcept {
      for (std::size_t count = 0; count < out.size();) {
        const auto [key, at] = entries_[first_++];
        out[count] = key;
        count += last[key] == at ? 1U : 0U;
      }
    }

   private:
    void keep_current(std::span<const std::uint32_t> last) noexcept {
      const auto begin = std::exchange(first_, 0);
      const auto end = std::exchange(end_, 0);
      for (auto i = begin; i < end; ++i)
        if (last[entries_[i].key] == entries_[i].at) entries_[end_++] = entries_[i];
    }

    std::vector<use_entry> entries_;
    std::size_t first_ = 0, end_ = 0;
  };

  [[nodiscard]] use_log& log_of(pool_id pool, std::size_t depth) noexcept {
    return logs_[index_of(pool) * sizes_ + depth];
  }

  std::size_t sizes_;
  std::vector<std::uint32_t> last_;  // [keys] use
  std::vector<use_log> logs_;        // [pools][sizes]
  std::uint32_t clock_ = 0;
};

}  // namespace hotset::inline v0::sim
