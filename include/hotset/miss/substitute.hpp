// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Replaces a missing expert by a resident expert with nearly the same router score.
///
/// Rule: in each place of a missing expert, its token takes the resident expert with the nearest score, at most
///   `tolerance` away and not yet used by the token. Ties: higher score, then lower id. Scores are router
///   probabilities, else the softmax of the logits. Misses go in order of first appearance. An expert is replaced in
///   all of its places. If one place has no substitute, the expert is fetched.
/// Source: Zhu et al. in SpecMD 3.1.2.
/// Deviations: the papers give no tolerance and no tie rule. A place keeps its gate weight. An expert of score 0,
///   which a router masks, is no substitute. Without scores, or if the ids are not whole tokens, everything is
///   fetched. A resident copy of a lower precision is used: for this rule it is no miss.
/// Exact: no.
/// Cost: O(places) per visit; O(E + K) and E exponentials per place of a missing expert. Memory: 4 bytes per place,
///   12 per expert.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/policy/miss_policy.hpp"

namespace hotset {

class substitute {
 public:
  struct config {
    double tolerance = 0.05;  ///< largest difference of router probabilities
    /// Parameters by name, as in `substitute:tolerance=0.05`.
    template <class From>
    static config read(From& from) {
      return {.tolerance = from.real("tolerance", config{}.tolerance)};
    }
    [[nodiscard]] validation validate() const {
      return detail::refuse_unless(tolerance >= 0.0, "substitute tolerance", tolerance,
                                   "0 or more");
    }
  };
  static constexpr std::string_view name = "substitute";
  static constexpr miss_traits traits{.needs_logits = true};

  substitute(const geometry& shape, const config& options)
      : tolerance_(options.tolerance),
        top_k_(shape.ranks()),
        first_(shape.expert_count(), end),
        next_(shape.tokens_per_visit() * top_k_, end),
        scores_(first_.size(), 0.0F),
        used_(first_.size(), 0) {}

  void decide(std::span<const miss> misses, const routing_view& view,
              const residency_view& residents, std::span<expert_id> ids,
              std::span<miss_decision> out) noexcept {
    HOTSET_ASSERT(ids.size() <= next_.size() && ids.size() == view.experts.size());
    HOTSET_ASSERT(residents.row.size() == first_.size());
    for (std::size_t n = 0; n < misses.size(); ++n)
      out[n] = {misses[n].held == miss::absent ? miss_action::fetch : miss_action::keep,
                precision_id{}};
    const auto cells = ids.size() / top_k_ * first_.size();
    const bool softmax = view.probabilities.size() != cells;
    const auto given = softmax ? view.logits : view.probabilities;
    if (misses.empty() || ids.size() % top_k_ != 0 || given.size() != cells) return;
    list_places(ids);
    token_ = none;
    for (std::size_t n = 0; n < misses.size(); ++n)
      if (misses[n].held == miss::absent &&
          replace(misses[n].expert, given, softmax, residents, ids))
        out[n].action = miss_action::substitute;
  }
  void observe(std::span<const float>) noexcept {}
  [[nodiscard]] precision_id prefetch_precision() const noexcept { return precision_id{}; }

 private:
  static constexpr std::uint32_t end = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

  /// Links the places of each expert, ascending.
  void list_places(id_view<expert_id> ids) noexcept {
    std::fill(first_.begin(), first_.end(), end);
    for (std::size_t place = ids.size(); place-- > 0;) {
      const auto e = ids[place];
      if (!is_within(e, first_.size())) continue;
      next_[place] = first_[e];
      first_[e] = static_cast<std::uint32_t>(place);
    }
  }
  /// Overwrites all places of a missing expert, or none.
  bool replace(expert_id missing, std::span<const float> given, bool softmax,
               const residency_view& residents, std::span<expert_id> ids) noexcept {
    auto place = first_[missing];
    for (; place != end; place = next_[place]) {
      const auto token = place / top_k_;
      if (token != token_) score(given.subspan(token * scores_.size(), scores_.size()), softmax);
      token_ = token;
      const auto found = nearest(missing, ids.subspan(token * top_k_, top_k_), residents);
      if (found == no_expert) break;
      ids[place] = found;
    }
    if (place == end) return true;
    for (auto p = first_[missing]; p != place; p = next_[p]) ids[p] = missing;
    return false;
  }
  /// Computes a token's scores, rounded to float: that hides differences in the last bits of exp between C libraries.
  void score(std::span<const float> given, bool softmax) noexcept {
    if (!softmax) {
      std::copy(given.begin(), given.end(), scores_.begin());
      return;
    }
    const double most = *std::max_element(given.begin(), given.end());
    double sum = 0.0;
    for (const double z : given) sum += std::exp(z - most);
    for (std::size_t e = 0; e < given.size(); ++e)
      scores_[e] = static_cast<float>(std::exp(given[e] - most) / sum);
  }
  [[nodiscard]] expert_id nearest(expert_id missing, id_view<expert_id> token,
                                  const residency_view& residents) noexcept {
    mark(token, 1);
    const double wanted = scores_[index_of(missing)];
    expert_id best = no_expert;
    double distance = tolerance_;
    for (std::size_t e = 0; e < scores_.size(); ++e) {
      if (residents.row[e] < 0 || used_[e] != 0 || !(scores_[e] > 0.0F)) continue;
      const double d = std::abs(scores_[e] - wanted);
      const bool nearer =
          d < distance ||
          (d == distance && (best == no_expert || scores_[e] > scores_[index_of(best)]));
      if (!nearer) continue;
      best = static_cast<expert_id>(e);
      distance = d;
    }
    mark(token, 0);
    return best;
  }
  void mark(id_view<expert_id> token, std::uint8_t mark) noexcept {
    for (const auto id : token)
      if (const auto e = static_cast<std::size_t>(static_cast<std::uint32_t>(id)); e < used_.size())
        used_[e] = mark;
  }

  double tolerance_;
  std::size_t top_k_;
  std::size_t token_ = none;         // token whose scores scores_ holds
  per_expert<std::uint32_t> first_;  // [expert] its first place
  std::vector<std::uint32_t> next_;  // [place] next place of the same expert
  std::vector<float> scores_;        // [expert]
  std::vector<std::uint8_t> used_;   // [expert] used by the current token
};

static_assert(miss_policy<substitute>);

}  // namespace hotset
