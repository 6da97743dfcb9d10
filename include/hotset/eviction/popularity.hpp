// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Evicts the slot whose key was least popular in a profile taken beforehand.
///
/// Rule: order by the profiled count of the key, then recency position; the counts never change.
///       A key without a profile counts 0.
/// Source: BrainStorm; any static profile. `config::source` says where the counts come from.
/// Deviations: none. A profile of the replayed trace itself sees the future: name it so.
/// Exact: yes (never changes what is computed).
/// Cost: one store per hit; O(1) per fill, O(log S) where the count falls; a victim costs O(log S) plus
///       the ineligible slots passed over.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/concepts/eviction_policy.hpp"
#include "hotset/residency/indexed_heap.hpp"

namespace hotset::inline v0 {

class popularity {
 public:
  struct config {
    std::vector<double> profile{};  ///< [layers * experts] counts or frequencies; empty: all 0
    std::string source{};  ///< a file, "first n tokens", "the replayed trace": for the report

    [[nodiscard]] validation validate() const {
      for (std::size_t k = 0; k < profile.size(); ++k)
        if (!(profile[k] >= 0.0) || std::isinf(profile[k]))
          return error{"popularity profile[" + std::to_string(k) +
                       "] = " + std::to_string(profile[k]) + ", accepted: finite, 0 or more"};
      return std::nullopt;
    }
    /// As validate(), and the profile must belong to this shape.
    [[nodiscard]] validation validate(const geometry& shape) const {
      if (!profile.empty() && profile.size() != shape.keys())
        return error{"popularity profile has " + std::to_string(profile.size()) +
                     " entries, accepted: none or layers x experts (" +
                     std::to_string(shape.keys()) + ")"};
      return validate();
    }
  };
  static constexpr std::string_view name = "popularity";

  explicit popularity(const pool_layout& layout) : popularity(layout, config{}) {}
  popularity(const pool_layout& layout, const config& options)
      : experts_(static_cast<std::size_t>(layout.shape().experts)),
        profile_(layout.shape().keys(), detail::ordered_bits(0.0)),
        order_(layout) {
    const auto known = std::min(profile_.size(), options.profile.size());
    for (std::size_t k = 0; k < known; ++k) profile_[k] = detail::ordered_bits(options.profile[k]);
  }

  void on_step(step_id, layer_id) noexcept {}
  void on_hit(const access& a) noexcept {
    order_.raise(a.slot, {order_.rank(a.slot).key, ++clock_});
  }
  void on_fill(const access& a) noexcept {
    order_.assign(a.pool, a.slot, {profile_[index(a.key)], ++clock_});
  }
  void on_bypass(const access&) noexcept {}
  void on_evict(slot_id slot, expert_key) noexcept { order_.vacate(slot); }

  [[nodiscard]] std::size_t select_victims(const visit_context& context, const slot_mask& eligible,
                                           std::span<slot_id> out) noexcept {
    return order_.select(context.pool, eligible, out);
  }

 private:
  [[nodiscard]] std::size_t index(expert_key key) const noexcept {
    return static_cast<std::size_t>(key.layer) * experts_ + static_cast<std::size_t>(key.expert);
  }

  std::size_t experts_;
  std::uint64_t clock_ = 0;
  std::vector<std::uint64_t> profile_;  // [key] ordered bits
  indexed_heap order_;
};

static_assert(eviction_policy<popularity>);

}  // namespace hotset::inline v0
