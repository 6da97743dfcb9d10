// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Fetches important misses at the highest precision and steps down for the others.
///
/// Rule: a weight is important from the `percentile`-th percentile of recent gate weights on: precision 0.
///       The range below it is divided evenly among the lower precisions: of 3 with percentile 60, p60
///       and up get 0, p30 and up 1, the rest 2. A resident copy serves an unimportant use whatever its
///       precision; below precision 0 it does not serve an important one, which is fetched at 0.
/// Source: SpecMD 3.1.2 (Fetch-priority) and 5.4 (the bottom 60 % are degraded); HOBBIT.
/// Deviations: gaps filled: "recent" is a window of the last `window` weights before this visit; how
///       several lower precisions divide the rest is ours; an expert's weight is the largest that a token gives
///       it. Without weights, or before the first are seen, everything is important. The paper also steps
///       down where room runs out; this rule does not see room.
/// Exact: no.
/// Cost: O(precisions) per miss, one percentile per lower precision at the first choice after `observe`,
///       one push per weight.

#include <array>
#include <cstddef>
#include <limits>
#include <span>
#include <string_view>

#include "hotset/miss/fetch_lowest.hpp"
#include "hotset/policy/miss_policy.hpp"
#include "hotset/predict/maps/sliding_percentile.hpp"

namespace hotset {

class fetch_priority {
 public:
  struct config {
    double percentile = 60.0;   ///< in (0, 100)
    std::size_t window = 4096;  ///< gate weights that are recent
    /// Parameters by name, as in `fetch_priority:percentile=60`.
    template <class From>
    static config read(From& from) {
      return {.percentile = from.real("percentile", config{}.percentile),
              .window = from.number("window", config{}.window)};
    }
    [[nodiscard]] validation validate() const { return validate_as(name); }
    [[nodiscard]] validation validate(const geometry& shape) const {
      return detail::validate_cascade(name, shape);
    }
    /// In the words of a policy that fetches by this rule.
    [[nodiscard]] validation validate_as(std::string_view policy) const {
      if (!(percentile > 0.0 && percentile < 100.0))
        return refusal(policy, " percentile = ", percentile, ", accepted: (0, 100)");
      if (window < 1 || window > most_window)
        return refusal(policy, " window = ", window, ", accepted: 1..", most_window);
      return std::nullopt;
    }
    static constexpr std::size_t most_window = std::size_t{1} << 24;
  };
  static constexpr std::string_view name = "fetch_priority";
  static constexpr miss_traits traits{.needs_weights = true};

  fetch_priority(const geometry& shape, const config& options)
      : lowest_(shape.precisions() - 1), percentile_(options.percentile), recent_(options.window) {}

  void decide(std::span<const miss> misses, const routing_view& view, const residency_view&,
              std::span<expert_id>, std::span<miss_decision> out) noexcept {
    const bool weighed = !view.weights.empty() && recent_.size() > 0;
    if (weighed && !current_) divide();
    for (std::size_t n = 0; n < misses.size(); ++n) {
      const auto wanted = weighed ? precision_for(misses[n].weight) : precision_id{0};
      const bool serves = misses[n].held != miss::absent && wanted > 0;
      out[n] = serves ? miss_decision{miss_action::keep, precision_id{}}
                      : miss_decision{miss_action::fetch, wanted};
    }
  }
  void observe(std::span<const float> weights) noexcept {
    for (const float w : weights) {
      if (!(w >= 0.0F && w <= std::numeric_limits<float>::max())) continue;  // no gate weight
      recent_.push(w);
      current_ = false;
    }
  }
  [[nodiscard]] precision_id prefetch_precision() const noexcept { return precision_id{}; }

 private:
  void divide() noexcept {
    for (std::size_t p = 0; p < lowest_; ++p) {
      const auto share = static_cast<double>(lowest_ - p);
      // p = 0 on its own: q * n / n need not be q.
      const double q = p == 0 ? percentile_ : percentile_ * share / static_cast<double>(lowest_);
      least_[p] = recent_.percentile(q);
    }
    current_ = true;
  }
  [[nodiscard]] precision_id precision_for(float weight) const noexcept {
    std::size_t p = 0;
    while (p < lowest_ && weight < least_[p]) ++p;
    return static_cast<precision_id>(p);
  }

  std::size_t lowest_;
  double percentile_;
  sliding_percentile recent_;
  std::array<float, geometry::max_precisions> least_{};  // [precision] least weight that gets it
  bool current_ = false;                                 // least_ belongs to recent_
};

static_assert(miss_policy<fetch_priority>);

}  // namespace hotset
