// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Smallest cap that serves a workload, by its predicted hit rate or by the support of its uses. Also a controller
/// for a running engine: experts get the support of their users' present uses, KV gets the rest.
///
/// Rule: C = clamp(support_cap(uses, coverage), C_min, the largest cap beside the KV floor); N takes what C leaves.
///   `uses` is the table of the served user, or the sum of several. An unknown user moves nothing. Call it at a
///   drained barrier. A change of the cap inside the dead zone is skipped.
/// Source: WiSP 4, 5.4, G.1: a user's cap is the support of their converged working set, found from very little of
///   their own traffic and without probing the device. The paper sizes a launch; it has no rule for a running engine.
/// Deviations: only the rule for a running engine; coverage is ours (the paper's is lost).
/// Cost: O(layers * experts log experts) per call; allocates.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/planning/budget/split_limits.hpp"
#include "hotset/planning/curve/miss_curve.hpp"

namespace hotset {

/// Returns the fewest slots whose hits reach the share `target` of `accesses` (both per step), or nothing if no
/// number does.
/// Pre: accesses > 0. Complexity: O(log slots).
template <miss_curve Curve>
[[nodiscard]] std::optional<std::size_t> right_size(const Curve& curve, double accesses,
                                                    double target) noexcept {
  const auto reaches = [&](std::size_t slots) {
    return accesses - curve.misses(slots) >= target * accesses;
  };
  if (!reaches(curve.max_slots())) return std::nullopt;
  std::size_t low = 0;
  for (auto high = curve.max_slots(); low < high;) {
    const auto middle = low + (high - low) / 2;
    if (reaches(middle))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/// Returns the cap that covers every layer. A layer needs its most used experts until their uses make up `coverage`
/// of all its uses; the cap is the greatest need. 0 if nothing was used. Shape: uses [layers, experts]. Complexity:
/// O(layers * experts log experts).
[[nodiscard]] inline std::size_t support_cap(std::span<const double> uses, std::size_t experts,
                                             double coverage) {
  std::size_t cap = 0;
  for (; !uses.empty(); uses = uses.subspan(experts)) {
    std::vector<double> sorted(uses.begin(), uses.begin() + static_cast<std::ptrdiff_t>(experts));
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    const auto total = std::accumulate(sorted.begin(), sorted.end(), 0.0);
    double covered = 0;
    std::size_t needed = 0;
    while (needed < experts && sorted[needed] > 0 && covered < coverage * total)
      covered += sorted[needed++];
    cap = std::max(cap, needed);
  }
  return cap;
}

/// Immutable. Threads: const use is safe.
class right_sizing {
 public:
  struct config {
    split_limits limits{};
    std::size_t experts = 0;      ///< experts per layer: the row length of a table of uses
    double coverage = 0.95;       ///< share of a layer's uses that its slots serve
    std::uint64_t dead_zone = 1;  ///< slots; a change of the cap by at most this is skipped

    [[nodiscard]] validation validate() const {
      if (experts == 0) return error{"right_sizing experts = 0, accepted: 1 or more"};
      if (!(coverage > 0 && coverage <= 1))
        return refusal("right_sizing coverage = ", coverage, ", accepted: more than 0, at most 1");
      if (limits.block_bytes == 0)
        return error{"right_sizing block_bytes = 0, accepted: 1 or more"};
      return limits.validate();
    }
  };

  static result<right_sizing> create(const config& options) {
    if (auto bad = options.validate()) return *std::move(bad);
    return right_sizing(options);
  }

  /// Returns the sizes to change to from `now`. Returns `now` itself if the change is not worth a resize, or nothing
  /// was used yet. Shape: uses [layers, experts].
  [[nodiscard]] pool_sizes next(const pool_sizes& now, std::span<const double> uses) const {
    if (std::accumulate(uses.begin(), uses.end(), 0.0) <= 0) return now;
    const auto to = target(uses);
    const auto apart = to.cap > now.cap ? to.cap - now.cap : now.cap - to.cap;
    return apart <= options_.dead_zone ? now : to;
  }
  /// Returns the sizes that the table calls for. Shape: uses [layers, experts].
  [[nodiscard]] pool_sizes target(std::span<const double> uses) const {
    const auto& limits = options_.limits;
    const auto cap =
        std::clamp<std::uint64_t>(support_cap(uses, options_.experts, options_.coverage),
                                  limits.min_cap, limits.largest_cap());
    return {cap, limits.blocks_beside(cap)};
  }

 private:
  explicit right_sizing(const config& options) : options_(options) {}

  config options_;
};

}  // namespace hotset
