// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Evicts the slot whose key was least popular in a profile taken beforehand.
///
/// Rule: order by the profiled count of the key, then recency position; the counts never change.
///       A key without a profile counts 0.
/// Source: BrainStorm; any static profile. its `source` says where the counts come from.
/// Deviations: none. A profile of the replayed trace itself sees the future: name it so.
/// Exact: yes (never changes what is computed).
/// Cost: O(1) per hit and fill; a victim costs O(1) plus the ineligible slots passed over. Counts that are
///       near in rank share a bucket, which is sorted when a victim is in it.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "hotset/core/ids/per_key.hpp"
#include "hotset/eviction/order/bucket_order.hpp"
#include "hotset/policy/eviction_policy.hpp"
#include "hotset/trace/policy_knowledge.hpp"

namespace hotset {

class popularity {
 public:
  static constexpr std::string_view name = "popularity";

  struct config {
    usage_profile profile{};  ///< empty: all 0

    /// Parameters by name, as in `popularity:profile=before.trace:first=64`.
    template <class From>
    static config read(From& from, const policy_knowledge& known) {
      (void)profile_of(from);
      return {known.profile};
    }
    template <class From>
    static std::optional<profile_request> profile_of(From& from) {
      return profile_request{from.text("profile", "trace"), from.number("first", std::uint64_t{0})};
    }

    [[nodiscard]] validation validate() const { return profile.validate(name); }
    /// Also refuses a profile of another shape.
    [[nodiscard]] validation validate(const geometry& shape) const {
      return profile.validate(name, shape);
    }
  };
  static constexpr eviction_traits traits{};

  explicit popularity(const pool_layout& layout) : popularity(layout, config{}) {}
  popularity(const pool_layout& layout, const config& options)
      : class_of_(layout.shape(), classes_of(layout, options.profile.counts)),
        most_of_a_visit_(layout.shape().expert_count()),
        order_(layout, class_buckets(layout, std::ranges::max(class_of_.values()) + 1)) {}

  void on_visit(const visit_event& e) noexcept {
    const auto slot_of = [](const fill& f) { return f.slot; };
    const auto class_of = [this](const fill& f) { return class_of_[f.key]; };
    auto position = clock_;
    clock_ += most_of_a_visit_;
    if (!e.fills.empty()) {
      order_.leave(e.context.pool, e.fills, slot_of);
      order_.put_again(e.context.pool, e.fills, slot_of, class_of, clock_);
    }
    for (const auto slot : e.used) order_.raise(slot, {order_.rank(slot).key, ++position});
  }
  void on_prefetch(const prefetch_event& e) noexcept {
    order_.put(e.pool, e.slot, {class_of_[e.key], ++clock_});
  }
  void on_evict(slot_id slot, expert_key) noexcept { order_.drop(slot); }
  void on_move(slot_id from, slot_id to) noexcept { order_.move(from, to); }

  [[nodiscard]] std::size_t select_victims(const visit_context& context, const slot_mask& eligible,
                                           std::span<slot_id> out) noexcept {
    return order_.select(context.pool, eligible, out);
  }

 private:
  /// A few buckets for each slot of a pool: where there are more classes, neighbours share one.
  class class_buckets {
   public:
    class_buckets() = default;
    class_buckets(const pool_layout& layout, std::size_t classes) noexcept : classes_(classes) {
      const auto most = std::max<std::size_t>(4 * layout.slots() / layout.pools(), 64);
      while (buckets() > most) ++shift_;
    }
    [[nodiscard]] std::size_t operator()(std::uint64_t of) const noexcept { return of >> shift_; }
    [[nodiscard]] std::size_t buckets() const noexcept { return ((classes_ - 1) >> shift_) + 1; }

   private:
    std::size_t classes_ = 1;
    unsigned shift_ = 0;
  };

  /// Keys of equal count are a class; classes are numbered by ascending count.
  static std::vector<std::size_t> classes_of(const pool_layout& layout,
                                             const std::vector<double>& profile) {
    std::vector<double> counts(profile);
    counts.resize(layout.shape().keys(), 0.0);
    auto distinct = counts;
    std::sort(distinct.begin(), distinct.end());
    distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
    std::vector<std::size_t> out;
    out.reserve(counts.size());
    for (const auto count : counts)
      out.push_back(static_cast<std::size_t>(
          std::lower_bound(distinct.begin(), distinct.end(), count) - distinct.begin()));
    return out;
  }
  per_key<std::size_t> class_of_;  // [key]
  std::uint64_t clock_ = 0;
  std::uint64_t most_of_a_visit_;  // slots
  bucket_order<class_buckets> order_;
};

static_assert(is_eviction_policy<popularity>());

}  // namespace hotset
