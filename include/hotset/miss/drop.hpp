// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Drops misses that no token ranks high.
///
/// Rule: an absent expert is fetched at precision 0 if its best rank in the visit is among the first `keep`, or if a
///   token gives it at least `threshold` of its gate weight. Any other absent expert is dropped, and the engine
///   renormalises the rest of each token.
/// Source: SpecMD 3.1.2 (Drop: "resilient beyond rank 2"), after Skliar et al.; the threshold is ours.
/// Deviations: none. A resident copy of a lower precision is used: for this rule it is no miss.
/// Exact: no.
/// Cost: O(1) per miss; with a threshold O(misses tokens K).

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "hotset/policy/miss_policy.hpp"

namespace hotset {

namespace detail {
[[nodiscard]] constexpr bool is_dropped(const miss& m, std::uint32_t keep) noexcept {
  return m.held == miss::absent && m.rank >= keep;
}
/// With keep = 0 a token could lose all its experts.
[[nodiscard]] inline validation validate_keep(std::string_view policy, std::uint32_t keep) {
  if (keep < 1) return refusal(policy, " keep = 0, accepted: 1 or more");
  return std::nullopt;
}
}  // namespace detail

class drop {
 public:
  struct config {
    static constexpr double any_weight = std::numeric_limits<double>::infinity();

    std::uint32_t keep = 2;  ///< ranks that are never dropped, counted from the best
    /// Share of a token's gate weight from which on an expert is not dropped. With a threshold, a visit without
    /// weights drops none.
    double threshold = any_weight;
    /// Parameters by name, as in `drop:keep=2`. With a threshold, as in `drop:threshold=0.05`, `keep` is 1 unless it
    /// is given.
    template <class From>
    static config read(From& from) {
      config out;
      out.threshold = from.real("threshold", any_weight);
      out.keep = from.number("keep", out.threshold == any_weight ? out.keep : 1U);
      return out;
    }
    [[nodiscard]] validation validate() const {
      if (!(threshold > 0.0))
        return refusal("drop threshold = ", threshold,
                       ", accepted: more than 0 (a share of a token's gate weight)");
      return detail::validate_keep(name, keep);
    }
  };
  static constexpr std::string_view name = "drop";
  static constexpr miss_traits traits{};

  drop(const geometry& shape, const config& options)
      : keep_(options.keep), threshold_(options.threshold), top_k_(shape.ranks()) {}

  void decide(std::span<const miss> misses, const routing_view& view, const residency_view&,
              std::span<expert_id>, std::span<miss_decision> out) const noexcept {
    for (std::size_t n = 0; n < misses.size(); ++n) {
      out[n] = {miss_action::fetch, precision_id{}};
      if (misses[n].held != miss::absent) out[n].action = miss_action::keep;
      if (detail::is_dropped(misses[n], keep_) && !weighs_enough(misses[n].expert, view))
        out[n].action = miss_action::drop;
    }
  }
  void observe(std::span<const float>) noexcept {}
  [[nodiscard]] precision_id prefetch_precision() const noexcept { return precision_id{}; }

 private:
  /// Returns whether a token of the visit gives the expert at least the threshold.
  [[nodiscard]] bool weighs_enough(expert_id expert, const routing_view& view) const noexcept {
    if (threshold_ == config::any_weight) return false;
    if (view.weights.size() != view.experts.size() || view.weights.empty()) return true;
    for (std::size_t first = 0; first + top_k_ <= view.experts.size(); first += top_k_) {
      double own = 0.0;
      double all = 0.0;
      for (std::size_t k = first; k < first + top_k_; ++k) {
        all += double{view.weights[k]};
        if (view.experts[k] == expert) own += double{view.weights[k]};
      }
      if (own > 0.0 && own >= threshold_ * all) return true;
    }
    return false;
  }

  std::uint32_t keep_;
  double threshold_;
  std::size_t top_k_;
};

static_assert(miss_policy<drop>);

}  // namespace hotset
