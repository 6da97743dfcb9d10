// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Evicts the slot whose key was least popular in a profile taken beforehand.
///
/// Rule: order by the profiled count of the key, then recency position; the counts never change.
///       A key without a profile counts 0.
/// Source: BrainStorm; any static profile. its `source` says where the counts come from.
/// Deviations: none. A profile of the replayed trace itself sees the future: name it so.
/// Exact: yes (never changes what is computed).
/// Cost: O(1) per hit and fill; a victim costs O(1) plus the ineligible slots passed over.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "hotset/concepts/eviction_policy.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/ids/per_key.hpp"
#include "hotset/order/recency_list.hpp"
#include "hotset/order/sparse_bits.hpp"
#include "hotset/trace/policy_knowledge.hpp"
#include "hotset/trace/usage_profile.hpp"

namespace hotset::inline v0 {

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
    /// As validate(), and the profile must belong to this shape.
    [[nodiscard]] validation validate(const geometry& shape) const {
      return profile.validate(name, shape);
    }
  };
  static constexpr eviction_traits traits{};

  explicit popularity(const pool_layout& layout) : popularity(layout, config{}) {}
  popularity(const pool_layout& layout, const config& options)
      : class_of_(layout.shape(), classes_of(layout, options.profile.counts)),
        classes_(std::ranges::max(class_of_.values()) + 1),
        order_(layout.slots(), layout.pools() * classes_),
        occupied_(layout.pools() * classes_),
        lowest_(layout.pools()) {
    for (const auto p : lowest_.ids()) lowest_[p] = (index_of(p) + 1) * classes_;
  }

  void on_hit(const access& a) noexcept { order_.move_to_back(list_of(a), a.slot); }
  void on_fill(const access& a) noexcept {
    const auto list = list_of(a);
    order_.push_back(list, a.slot);
    occupied_.set(list);
    auto& lowest = lowest_[a.pool];
    lowest = std::min(lowest, list);
  }
  void on_evict(slot_id slot, expert_key) noexcept { order_.erase(slot); }
  void on_move(slot_id from, slot_id to) noexcept { order_.take_place(from, to); }

  [[nodiscard]] std::size_t select_victims(const visit_context& context, const slot_mask& eligible,
                                           std::span<slot_id> out) noexcept {
    const auto end = (index_of(context.pool) + 1) * classes_;
    auto& lowest = lowest_[context.pool];
    lowest = first_occupied(lowest, end);
    std::size_t count = 0;
    for (auto list = lowest; list != end && count < out.size();
         list = first_occupied(list + 1, end))
      count += order_.select(list, eligible, out.subspan(count));
    return count;
  }

 private:
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
  [[nodiscard]] std::size_t list_of(const access& a) const noexcept {
    return index_of(a.pool) * classes_ + class_of_[a.key];
  }
  /// Lists are marked when they get a slot, and unmarked here when they hold none.
  [[nodiscard]] std::size_t first_occupied(std::size_t from, std::size_t end) noexcept {
    auto list = occupied_.next(from, end);
    while (list != end && order_.front(list) == no_slot) {
      occupied_.reset(list);
      list = occupied_.next(list + 1, end);
    }
    return list;
  }

  per_key<std::size_t> class_of_;  // [key]
  std::size_t classes_;
  recency_list order_;            // one list per pool and class
  sparse_bits occupied_;          // lists that may hold slots
  per_pool<std::size_t> lowest_;  // [pool] no list of its own before it holds a slot
};

static_assert(is_eviction_policy<popularity>());

}  // namespace hotset::inline v0
