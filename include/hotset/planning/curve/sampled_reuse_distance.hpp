// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Miss curves of a sample of the keys: SHARDS, at a fixed rate or with a fixed number of keys.
///
/// Rule: a key belongs to the sample if its hash is below rate * 2^32, always or never. A distance d among the sampled
/// keys stands for d / rate among all, and the access for 1 / rate accesses. With most_keys, the sampled key of
/// the largest hash goes when there is one too many, and the rate falls to leave it out.
/// Source: SHARDS (Waldspurger et al., FAST 2015), the adjusted form: what the sample has too few or too many accesses
/// is booked as hits at distance 1, so misses are counts and not shares of the sample.
/// Deviations: visits are event-atomic (reuse_distance.hpp); when the rate falls, each count keeps the weight that it
/// was counted with, which is what rescaling all counts comes to.
/// The hash: two rounds of multiply and fold, because neighbouring ids must not be sampled evenly; the upper half counts.
/// Cost: two multiplications for an access outside the sample. Where the processor has AVX-512, many ids at once: the same
/// loop, compiled for it.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/planning/curve/miss_curve.hpp"
#include "hotset/planning/curve/recency_bitmap.hpp"
#include "hotset/policy/policy_config.hpp"

#if defined(__GNUC__) && defined(__x86_64__) && !defined(__CUDACC__)
#define HOTSET_FILTERS_IN_VECTORS 1
#else
#define HOTSET_FILTERS_IN_VECTORS 0
#endif

namespace hotset {

/// Picks the keys of a sample out of a row of ids: those whose hash is below a limit.
/// Immutable. Threads: const use is safe.
class sample_filter {
 public:
  static constexpr std::size_t most_ids = 512;  ///< of one call
  using keys = std::array<std::uint32_t, most_ids>;

  sample_filter() = default;
  /// Another sample for another seed.
  explicit sample_filter(std::uint64_t seed) noexcept : seed_(seed) {}

  [[nodiscard]] std::uint32_t hash(std::uint32_t key) const noexcept {
    auto x = (key + seed_) * 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 32U)) * 0xd6e8feb86659fd93U;
    return static_cast<std::uint32_t>(x >> 32U);
  }
  /// Writes the ids whose hash is below `limit` to the front of `out`, in order; what lies behind them is unknown.
  /// Returns how many. Pre: no more than most_ids.
  std::size_t select(id_view<expert_id> ids, std::uint64_t limit, keys& out) const noexcept {
    HOTSET_ASSERT(ids.size() <= most_ids);
#if HOTSET_FILTERS_IN_VECTORS
    if (has_vectors()) return select_in_vectors(ids, limit, out);
#endif
    return select_one_by_one(ids, limit, out);
  }
  /// Whether `select` uses vectors here.
  [[nodiscard]] static bool has_vectors() noexcept {
#if HOTSET_FILTERS_IN_VECTORS
    return __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
#else
    return false;
#endif
  }
  /// `select` without vectors: multiplications of 64 bits are slower in those that every processor has.
  std::size_t select_one_by_one(id_view<expert_id> ids, std::uint64_t limit,
                                keys& out) const noexcept {
    std::size_t count = 0;
    for (const auto id : ids) {
      const auto key = static_cast<std::uint32_t>(id);
      out[count] = key;
      count += hash(key) < limit ? 1U : 0U;
    }
    return count;
  }

 private:
#if HOTSET_FILTERS_IN_VECTORS
  /// First all hashes, which compilers make vectors of, then the choice.
  __attribute__((target("avx512f,avx512dq,avx512vl"))) std::size_t select_in_vectors(
      id_view<expert_id> ids, std::uint64_t limit, keys& out) const noexcept {
    keys hashes;  // NOLINT(cppcoreguidelines-pro-type-member-init): written before it is read
    for (std::size_t i = 0; i < ids.size(); ++i)
      hashes[i] = hash(static_cast<std::uint32_t>(ids[i]));
    std::size_t count = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      out[count] = static_cast<std::uint32_t>(ids[i]);
      count += hashes[i] < limit ? 1U : 0U;
    }
    return count;
  }
#endif

  std::uint64_t seed_ = 0;
};

/// Threads: compatible. Memory: 4 bytes a key, 8 a bin, and that of the sampled keys; more is taken only when a fixed
/// rate samples more keys than it should by far.
class sampled_reuse_distance {
 public:
  struct config {
    std::size_t keys = 0;        ///< ids are 0..keys-1
    double rate = 0.01;          ///< share of the keys that is looked at, at most
    std::size_t most_keys = 0;   ///< of the sample; 0: no limit
    std::size_t bins = 1 << 14;  ///< of the curve, at most
    std::uint64_t seed = 0;      ///< another sample for another seed

    [[nodiscard]] validation validate() const {
      if (keys < 1 || keys > recency_bitmap::most_keys)
        return refuse_value("sampled_reuse_distance keys", keys,
                            "1.." + std::to_string(recency_bitmap::most_keys));
      if (!(rate > 0 && rate <= 1))
        return refuse_value("sampled_reuse_distance rate", rate, "more than 0, at most 1");
      if (bins < 1) return refuse_value("sampled_reuse_distance bins", bins, "1 or more");
      return std::nullopt;
    }
  };

#if HOTSET_EXCEPTIONS
  /// Errors: throws invalid_config.
  explicit sampled_reuse_distance(const config& options)
      : sampled_reuse_distance(create(options).value()) {}
#endif
  static result<sampled_reuse_distance> create(const config& options) {
    if (auto bad = options.validate()) return *std::move(bad);
    return sampled_reuse_distance(options, 0);
  }

  /// Each id an access of its own; ids outside 0..keys-1 are passed over.
  void access(id_view<expert_id> ids) {
    accesses_ += ids.size();
    sample_filter::keys found;  // NOLINT(cppcoreguidelines-pro-type-member-init): select writes it
    while (!ids.empty()) {
      const auto some = ids.first(std::min(ids.size(), sample_filter::most_ids));
      ids = ids.subspan(some.size());
      take(std::span(found).first(filter_.select(some, below_, found)));
    }
  }

  /// One visit: all its keys, first_key + id, are measured before any of them moves. Ids outside the keys are passed over.
  void visit(id_view<expert_id> ids, std::size_t first_key) {
    members_.clear();
    for (auto i = ids.size(); i-- > 0;) {
      const auto key = static_cast<std::uint32_t>(first_key) + static_cast<std::uint32_t>(ids[i]);
      if (ids[i] < 0 || key >= options_.keys || !is_sampled(key)) continue;
      if (std::find(members_.begin(), members_.end(), key) == members_.end())
        members_.push_back(key);
    }
    for (const auto key : members_) measure(key);
    // From the back: in the order of their last appearance.
    for (auto i = members_.size(); i-- > 0;) move_to_front(members_[i]);
  }
  /// Accesses of a visit: its distinct keys, counted by the caller, sampled or not.
  void end_visit(std::uint64_t distinct) noexcept { accesses_ += distinct; }

  /// Share of the keys that is looked at now.
  [[nodiscard]] double rate() const noexcept {
    return std::ldexp(static_cast<double>(below_), -32);
  }
  [[nodiscard]] std::uint64_t accesses() const noexcept { return accesses_; }
  /// First sights that the sample stands for; they miss at every capacity.
  [[nodiscard]] double first_sights() const noexcept { return cold_; }
  /// Accesses of sampled keys.
  [[nodiscard]] std::uint64_t sampled() const noexcept { return sampled_; }
  [[nodiscard]] std::size_t sampled_keys() const noexcept { return stack_.live(); }

  /// Misses of all accesses, first sights included. Complexity: O(bins).
  [[nodiscard]] sampled_miss_curve curve() const {
    std::vector<double> misses(weights_.size() + 1);
    auto tail = cold_;
    for (std::size_t b = weights_.size(); b > 0; --b) {
      misses[b] = tail;
      tail += weights_[b - 1];
    }
    misses[0] = std::max(tail, static_cast<double>(accesses_));
    // More than all accesses cannot miss.
    for (auto& m : misses) m = std::min(m, static_cast<double>(accesses_));
    return sampled_miss_curve(std::move(misses), width_);
  }

 private:
  struct hashed_key {
    std::uint32_t hash = 0;
    std::uint32_t key = 0;
    friend bool operator<(const hashed_key& a, const hashed_key& b) noexcept {
      return std::pair(a.hash, a.key) < std::pair(b.hash, b.key);
    }
  };

  sampled_reuse_distance(const config& options, int)
      : options_(options),
        filter_(options.seed),
        below_(static_cast<std::uint64_t>(std::ldexp(options.rate, 32))),
        stack_(options.keys, expected_keys(options)),
        width_((options.keys + options.bins - 1) / options.bins),
        weights_((options.keys + width_ - 1) / width_, 0.0) {
    if (options.most_keys > 0) largest_.reserve(options.most_keys + 1);
  }

  static std::size_t expected_keys(const config& options) {
    if (options.most_keys > 0) return std::min(options.most_keys + 1, options.keys);
    const auto expected = options.rate * static_cast<double>(options.keys);
    return std::min(options.keys, static_cast<std::size_t>(expected + 6 * std::sqrt(expected)) + 1);
  }

  [[nodiscard]] bool is_sampled(std::uint32_t key) const noexcept {
    return filter_.hash(key) < below_;
  }

  /// What lies far apart in memory is asked for before any of it is needed.
  void take(std::span<const std::uint32_t> keys) {
    for (const auto key : keys)
      if (key < options_.keys) stack_.prefetch(key);
    for (const auto key : keys) {
      if (key >= options_.keys || !is_sampled(key)) continue;  // the rate falls on the way
      measure(key);
      move_to_front(key);
    }
  }
  void measure(std::uint32_t key) {
    const auto weight = std::ldexp(1.0, 32) / static_cast<double>(below_);
    const auto distance = stack_.distance(key);
    ++sampled_;
    if (distance == 0) {
      cold_ += weight;
      return;
    }
    const auto scaled = std::ceil(static_cast<double>(distance) * weight);
    const auto bin = (static_cast<std::size_t>(scaled) - 1) / width_;
    weights_[std::min(bin, weights_.size() - 1)] += weight;
  }
  void move_to_front(std::uint32_t key) {
    const bool is_new = stack_.distance(key) == 0;
    if (is_new && !is_sampled(key)) return;  // the rate fell since the visit began
    if (is_new && stack_.live() == stack_.room()) stack_.grow(2 * stack_.room());
    stack_.touch(key);
    if (is_new && options_.most_keys > 0) keep_smallest(key);
  }
  void keep_smallest(std::uint32_t key) {
    largest_.push_back({filter_.hash(key), key});
    std::push_heap(largest_.begin(), largest_.end());
    while (largest_.size() > options_.most_keys) {
      below_ = largest_.front().hash;
      drop_largest();
    }
    // Keys of the same hash are in the sample together or not at all.
    while (!largest_.empty() && largest_.front().hash >= below_) drop_largest();
  }
  void drop_largest() {
    std::pop_heap(largest_.begin(), largest_.end());
    stack_.forget(largest_.back().key);
    largest_.pop_back();
  }

  config options_;
  sample_filter filter_;
  std::uint64_t below_ = 0;  ///< hashes below it are sampled
  recency_bitmap stack_;
  std::size_t width_ = 1;
  std::vector<double> weights_;  ///< accesses that the sample stands for, by scaled distance
  double cold_ = 0;
  std::uint64_t accesses_ = 0;
  std::uint64_t sampled_ = 0;
  std::vector<std::uint32_t> members_;  ///< sampled keys of the visit, the last first
  std::vector<hashed_key> largest_;     ///< heap of the sampled keys, with most_keys
};

}  // namespace hotset
