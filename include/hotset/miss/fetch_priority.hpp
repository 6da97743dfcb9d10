// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Fetches important misses at the highest precision, and the others at lower ones.
///
/// Rule: a weight is important from the `percentile`-th percentile of recent gate weights on, and gets precision 0.
///   The range below is divided evenly among the lower precisions. With 3 precisions and percentile 60, weights from
///   p60 on get 0, from p30 on 1, the rest 2. A resident copy serves an unimportant use at any precision. An
///   important use needs precision 0; if the copy is lower, it is fetched at 0.
/// Source: SpecMD 3.1.2 (Fetch-priority) and 5.4 (the bottom 60 % are degraded); HOBBIT.
/// Deviations: gaps filled: "recent" is a window of the last `window` weights before this visit; how several lower
///   precisions divide the rest is ours; an expert's weight is the largest that a token gives it. Without weights, or
///   before the first are seen, everything is important. The paper also lowers precision if memory runs out; this
///   rule does not see free memory.
/// Exact: no.
/// Cost: O(precisions) per miss, one percentile per lower precision at the first choice after `observe`, one push per
///   weight.

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
    std::size_t window = 4096;  ///< number of recent gate weights
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
    /// Validates in the name of a policy that fetches by this rule.
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
      if (!(w >= 0.0F && w <= std::numeric_limits<float>::max())) continue;  // not a gate weight
      recent_.push(w);
      current_ = false;
    }
  }
  [[nodiscard]] precision_id prefetch_precision() const noexcept { return precision_id{}; }

 private:
  void divide() noexcept {
    for (std::size_t p = 0; p < lowest_; ++p) {
      const auto share = static_cast<double>(lowest_ - p);
      // p = 0 is separate: q * n / n need not be q.
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
  bool current_ = false;                                 // least_ is up to date with recent_
};

static_assert(miss_policy<fetch_priority>);

}  // namespace hotset
