// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Evicts the slot whose key has the lowest count in a profile taken beforehand.
///
/// Rule: order by the key's profiled count, then recency position. Counts never change. A key without a profile
///   counts 0.
/// Source: BrainStorm; any static profile. Its `source` says where the counts come from.
/// Deviations: none. A profile of the replayed trace itself knows the future: say so in its name.
/// Exact: yes (never changes what is computed).
/// Cost: O(1) per hit and fill; a victim costs O(1) plus skipped ineligible slots. Near counts share a bucket, which
///   is sorted when a victim is in it.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "hotset/core/ids/per_key.hpp"
#include "hotset/eviction/order/bucket_order.hpp"
#include "hotset/policy/eviction_policy.hpp"
#include "hotset/trace/policy_knowledge.hpp"

namespace hotset {

class popularity {
 public:
  static constexpr std::string_view name = "popularity";

  struct config {
    usage_profile profile{};  ///< empty: all counts are 0

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

  /// Pre: options.validate(layout.shape()) returns no error.
  popularity(const pool_layout& layout, const config& options)
      : ranks_(layout.shape(), detail::ordered_bits(0.0)),
        most_of_a_visit_(layout.shape().expert_count()),
        order_(layout, score_buckets(layout)) {
    if (options.profile.empty()) return;
    const auto& counts = options.profile.counts;
    // A power of two keeps the order. It moves the greatest count to the last buckets.
    const auto most = std::max(std::ranges::max(counts), 0x1p-900);
    const auto scale = std::ldexp(1.0, 19 - std::ilogb(most));
    std::ranges::transform(counts, ranks_.values().begin(),
                           [scale](double c) { return detail::ordered_bits(c * scale); });
  }

  void on_visit(const visit_event& e) noexcept {
    const auto slot_of = [](const fill& f) { return f.slot; };
    const auto rank_of = [this](const fill& f) { return ranks_[f.key]; };
    auto position = clock_;
    clock_ += most_of_a_visit_;
    if (!e.fills.empty()) {
      order_.leave(e.context.pool, e.fills, slot_of);
      order_.put_again(e.context.pool, e.fills, slot_of, rank_of, clock_);
    }
    for (const auto slot : e.used) order_.raise(slot, {order_.rank(slot).key, ++position});
  }
  void on_prefetch(const prefetch_event& e) noexcept {
    order_.put(e.pool, e.slot, {ranks_[e.key], ++clock_});
  }
  void on_evict(slot_id slot, expert_key) noexcept { order_.drop(slot); }
  void on_move(slot_id from, slot_id to) noexcept { order_.move(from, to); }

  [[nodiscard]] std::size_t select_victims(const visit_context& context, const slot_mask& eligible,
                                           std::span<slot_id> out) noexcept {
    return order_.select(context.pool, eligible, out);
  }

 private:
  per_key<std::uint64_t> ranks_;  // [key] count, as ordered bits
  std::uint64_t clock_ = 0;
  std::uint64_t most_of_a_visit_;  // most slots that one visit uses
  bucket_order<score_buckets> order_;
};

static_assert(is_eviction_policy<popularity>());

}  // namespace hotset
