// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Miss curves from a sample of the keys: SHARDS, at a fixed rate or with a fixed number of keys.
///
/// Rule: a key belongs to the sample, always or never, if its hash is below rate * 2^32. A distance d among the
///   sampled keys stands for d / rate among all, and an access for 1 / rate accesses. If most_keys is set and the
///   sample has one key too many, the key with the largest hash is removed and the rate falls to exclude it.
/// Source: SHARDS (Waldspurger et al., FAST 2015), the adjusted form: accesses that the sample has too few or too
///   many count as hits at distance 1. So misses are counts, not shares of the sample.
/// Deviations: visits are event-atomic (reuse_distance.hpp). When the rate falls, each count keeps the weight that it
///   was counted with, which equals rescaling all counts. The hash is two rounds of multiply and fold, because
///   neighbouring ids must not be sampled evenly; the upper half counts.
/// Cost: two multiplications for an access outside the sample.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/planning/curve/miss_curve.hpp"
#include "hotset/planning/curve/recency_bitmap.hpp"

namespace hotset {

/// Threads: compatible. Memory: 12 bytes per key, and about 2 per sampled key, allocated as they come.
class sampled_reuse_distance {
 public:
  struct config {
    std::size_t keys = 0;       ///< ids are 0..keys-1
    double rate = 0.01;         ///< largest share of the keys that is sampled
    std::size_t most_keys = 0;  ///< most keys in the sample; 0: no limit
    std::uint64_t seed = 0;     ///< another seed gives another sample

    [[nodiscard]] validation validate() const {
      if (keys < 1 || keys > recency_bitmap::most_keys)
        return refusal("sampled_reuse_distance keys = ", keys, ", accepted: 1..",
                       recency_bitmap::most_keys);
      if (!(rate > 0 && rate <= 1))
        return refusal("sampled_reuse_distance rate = ", rate,
                       ", accepted: more than 0, at most 1");
      return std::nullopt;
    }
  };

  static result<sampled_reuse_distance> create(const config& options) {
    if (auto bad = options.validate()) return *std::move(bad);
    return sampled_reuse_distance(options);
  }

  /// Adds a visit of `distinct` keys, sampled or not. All its keys, first_key + id, are measured before any of them
  /// moves. Ids outside the keys are skipped.
  void visit(id_view<expert_id> ids, std::size_t first_key, std::uint64_t distinct) {
    accesses_ += distinct;
    members_.clear();
    for (auto i = ids.size(); i-- > 0;) {
      const auto key = static_cast<std::uint32_t>(first_key) + static_cast<std::uint32_t>(ids[i]);
      if (ids[i] < 0 || key >= options_.keys || !is_sampled(key)) continue;
      if (std::find(members_.begin(), members_.end(), key) == members_.end())
        members_.push_back(key);
    }
    for (const auto key : members_) measure(key);
    // From the back: the order of their last appearance.
    for (auto i = members_.size(); i-- > 0;) move_to_front(members_[i]);
  }

  /// Share of the keys that is sampled now.
  [[nodiscard]] double rate() const noexcept {
    return std::ldexp(static_cast<double>(below_), -32);
  }
  /// First uses that the sample stands for; they miss at every capacity.
  [[nodiscard]] double first_sights() const noexcept { return cold_; }
  [[nodiscard]] std::size_t sampled_keys() const noexcept { return stack_.live(); }

  /// Misses of all accesses, first uses included. Complexity: O(keys).
  [[nodiscard]] sampled_miss_curve curve() const {
    std::vector<double> misses(weights_.size());
    auto tail = cold_;
    for (auto slots = misses.size(); slots-- > 0;) {
      misses[slots] = tail;
      tail += weights_[slots];
    }
    misses[0] = std::max(misses[0], static_cast<double>(accesses_));
    // Misses cannot exceed all accesses.
    for (auto& m : misses) m = std::min(m, static_cast<double>(accesses_));
    return sampled_miss_curve(std::move(misses));
  }

 private:
  explicit sampled_reuse_distance(const config& options)
      : options_(options),
        below_(static_cast<std::uint64_t>(std::ldexp(options.rate, 32))),
        stack_(options.keys, 0),
        weights_(options.keys + 1, 0.0) {
    if (options.most_keys > 0) largest_.reserve(options.most_keys + 1);
  }

  [[nodiscard]] std::uint32_t hash_of(std::uint32_t key) const noexcept {
    auto x = (key + options_.seed) * 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 32U)) * 0xd6e8feb86659fd93U;
    return static_cast<std::uint32_t>(x >> 32U);
  }
  [[nodiscard]] bool is_sampled(std::uint32_t key) const noexcept { return hash_of(key) < below_; }

  void measure(std::uint32_t key) {
    const auto weight = std::ldexp(1.0, 32) / static_cast<double>(below_);
    const auto distance = stack_.distance(key);
    if (distance == 0) {
      cold_ += weight;
      return;
    }
    const auto scaled = static_cast<std::size_t>(std::ceil(static_cast<double>(distance) * weight));
    weights_[std::min(scaled, weights_.size() - 1)] += weight;
  }
  void move_to_front(std::uint32_t key) {
    const bool is_new = stack_.distance(key) == 0;
    if (is_new && !is_sampled(key)) return;  // the rate has fallen since the visit began
    stack_.touch(key);
    if (is_new && options_.most_keys > 0) keep_smallest(key);
  }
  void keep_smallest(std::uint32_t key) {
    largest_.emplace_back(hash_of(key), key);
    std::push_heap(largest_.begin(), largest_.end());
    while (largest_.size() > options_.most_keys) {
      below_ = largest_.front().first;
      drop_largest();
    }
    // Keys with the same hash are in the sample together or not at all.
    while (!largest_.empty() && largest_.front().first >= below_) drop_largest();
  }
  void drop_largest() {
    std::pop_heap(largest_.begin(), largest_.end());
    stack_.forget(largest_.back().second);
    largest_.pop_back();
  }

  config options_;
  std::uint64_t below_ = 0;  ///< hashes below it are sampled
  recency_bitmap stack_;
  /// [keys + 1] accesses that the sample stands for, by scaled distance.
  std::vector<double> weights_;
  double cold_ = 0;
  std::uint64_t accesses_ = 0;
  std::vector<std::uint32_t> members_;  ///< sampled keys of the visit, last first
  /// Heap of (hash, key), used with most_keys.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> largest_;
};

}  // namespace hotset
