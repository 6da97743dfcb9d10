// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Leaves misses on the host, where the engine computes them.
///
/// Rule: split `none`: every miss is computed on the host. `bandwidth_matched`: of m misses, f are fetched at
///   precision 0 so that max(f * fetch_cost, (m - f) * host_cost) is least; ties go to fewer fetches. The link and
///   the host then finish together. The misses with most uses are fetched; ties go in order of first appearance.
/// Source: `none`: engines that compute offloaded experts on the host. `bandwidth_matched`: ours.
/// Deviations: none. A resident copy of a lower precision counts as a miss.
/// Exact: yes, up to the order of summation.
/// Cost: O(1) per miss; O(m log f) with a split. Memory: 4 bytes per distinct expert of a visit.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "hotset/core/platform/assert.hpp"
#include "hotset/policy/miss_policy.hpp"

namespace hotset {

/// Whether the link takes over part of the host's work.
enum class host_split : std::uint8_t { none, bandwidth_matched };

class compute_on_host {
 public:
  struct config {
    host_split split = host_split::none;
    double fetch_cost = 1.0;  ///< cost of one expert, in any unit
    double host_cost = 1.0;   ///< cost of one expert, in the same unit
    /// Parameters by name, as in `compute_on_host:split=bandwidth_matched`.
    template <class From>
    static config read(From& from) {
      return {
          .split = static_cast<host_split>(from.choice("split", {"none", "bandwidth_matched"}, 0)),
          .fetch_cost = from.real("fetch_cost", config{}.fetch_cost),
          .host_cost = from.real("host_cost", config{}.host_cost)};
    }
    [[nodiscard]] validation validate() const {
      if (auto bad = detail::one_of("compute_on_host split", split, {"none", "bandwidth_matched"}))
        return bad;
      for (const auto& [what, cost] :
           {std::pair("fetch_cost", fetch_cost), std::pair("host_cost", host_cost)})
        if (!(cost > 0.0 && cost <= std::numeric_limits<double>::max()))
          return refusal("compute_on_host ", what, " = ", cost, ", accepted: finite, above 0");
      return std::nullopt;
    }
  };
  static constexpr std::string_view name = "compute_on_host";
  static constexpr miss_traits traits{.is_exact = true};

  compute_on_host(const geometry& shape, const config& options)
      : options_(options), order_(shape.distinct_per_visit()) {}

  void decide(std::span<const miss> misses, const routing_view&, const residency_view&,
              std::span<expert_id>, std::span<miss_decision> out) noexcept {
    HOTSET_ASSERT(misses.size() <= order_.size());
    std::fill_n(out.begin(), misses.size(), miss_decision{miss_action::host, precision_id{}});
    const auto fetched = fetches_of(misses.size());
    if (fetched == 0) return;
    const auto order = std::span(order_).first(misses.size());
    std::iota(order.begin(), order.end(), 0U);
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(fetched),
                      order.end(), [misses](std::uint32_t a, std::uint32_t b) {
                        if (misses[a].uses != misses[b].uses)
                          return misses[a].uses > misses[b].uses;
                        return a < b;
                      });
    for (const auto n : order.first(fetched)) out[n].action = miss_action::fetch;
  }
  void observe(std::span<const float>) noexcept {}
  [[nodiscard]] precision_id prefetch_precision() const noexcept { return precision_id{}; }

 private:
  [[nodiscard]] std::size_t fetches_of(std::size_t misses) const noexcept {
    if (options_.split == host_split::none) return 0;
    const auto time = [&](std::size_t fetched) {
      return std::max(static_cast<double>(fetched) * options_.fetch_cost,
                      static_cast<double>(misses - fetched) * options_.host_cost);
    };
    std::size_t best = 0;
    for (std::size_t f = 1; f <= misses; ++f)
      if (time(f) < time(best)) best = f;
    return best;
  }

  config options_;
  std::vector<std::uint32_t> order_;  // scratch
};

static_assert(miss_policy<compute_on_host>);

}  // namespace hotset
