// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Decides how many slots of the next layer should be free before its routing is known.
///
/// Rule: p are the next layer's expected probabilities, descending. The gap is k - H, where H of the k best experts
///   are resident. The redundancy r_k is the number of j in 0..r_max - 1 with p(k + j) - p(k + j + 1) < tau. The
///   target is their sum, slots that are free already included. For one token k is the router's K. For more it is the
///   number of distinct experts among the K best of each.
/// Source: ActiveEvict 3.3, equations 14 to 17.
/// Deviations: the target counts free slots; releasing as many more every time would drain the pool. A gap past the
///   last expert does not count. Without a forecast nothing is released. For more than one token p is the mean.
/// Exact: yes (never changes what is computed).
/// Cost: O(tokens E) and a sort of the K best.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/forecast.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/policy/policy_config.hpp"
#include "hotset/predict/layer_scores.hpp"

namespace hotset {

/// When the slots are released.
enum class release_point : std::uint8_t {
  gate,  ///< at the running layer's gate, before its own copies
  end,   ///< when the running layer's computation has been submitted
};

/// Weights are read-only, so a victim's slot is free at once. Releasing early then only means choosing with less
/// knowledge. It pays if victims are copied back before their slots can be filled.
/// No allocation after construction. Threads: compatible.
class active_evict {
 public:
  struct config {
    double tau = 0.002;      ///< gaps below it are uncertain
    std::int32_t r_max = 2;  ///< most slots for uncertainty
    release_point release = release_point::gate;
    bool protect_predicted = false;  ///< the k best are not released

    /// Parameters by name, as in `active_evict:tau=0.002:r_max=2:release=gate`.
    template <class From>
    static config read(From& from) {
      return {.tau = from.real("tau", config{}.tau),
              .r_max = from.number("r_max", config{}.r_max),
              .release = static_cast<release_point>(from.choice("release", {"gate", "end"}, 0)),
              .protect_predicted = from.choice("protect_predicted", {"false", "true"}, 0) == 1};
    }
    [[nodiscard]] validation validate() const {
      if (!(tau >= 0.0 && tau <= 1.0))
        return refusal("active_evict tau = ", tau, ", accepted: 0..1");
      if (r_max < 0) return refusal("active_evict r_max = ", r_max, ", accepted: 0 or more");
      return detail::one_of("active_evict release", release, {"gate", "end"});
    }
  };
  static constexpr std::string_view name = "active_evict";

  /// Slots of a layer that should be free, and slots that must not be released for that.
  struct target {
    std::size_t free = 0;
    std::span<const slot_id> spared{};  ///< valid until the next call
  };

  /// Pre: options.validate() returns no error.
  active_evict(const geometry& shape, const config& options)
      : options_(options),
        experts_(shape.expert_count()),
        top_k_(shape.ranks()),
        scores_(experts_),
        ranked_(experts_),
        chosen_(experts_, 0) {
    spared_.reserve(experts_);
  }

  [[nodiscard]] const config& options() const noexcept { return options_; }

  /// Pre: `expected` begins with the layer of `residents`.
  [[nodiscard]] target decide(const forecast& expected, const residency_view& residents) noexcept {
    spared_.clear();
    const auto tokens = expected.tokens(experts_);
    if (tokens == 0 || residents.row.size() != experts_) return {};
    const auto k = tokens == 1 ? top_k_ : distinct(expected, tokens);
    const auto scored = scores_.take(expected, 0);
    const auto sorted = std::min(experts_, k + static_cast<std::size_t>(options_.r_max));
    detail::sort_best(scored, sorted);
    for (const auto s : scored.first(std::min(k, experts_)))
      if (const auto slot = residents.row[index_of(detail::expert_of(s))]; slot != no_slot)
        spared_.push_back(slot);
    target out;
    out.free = std::min(k, experts_) - spared_.size() + redundancy(scored.first(sorted), k);
    if (options_.protect_predicted) out.spared = spared_;
    return out;
  }

 private:
  /// Pre: `sorted` reaches as far as the last gap does, or to the last expert.
  [[nodiscard]] std::size_t redundancy(std::span<const detail::scored_expert> sorted,
                                       std::size_t k) const noexcept {
    std::size_t count = 0;
    for (std::size_t at = k; at < sorted.size(); ++at) {
      const auto gap =
          double{detail::score_of(sorted[at - 1])} - double{detail::score_of(sorted[at])};
      count += gap < options_.tau ? 1U : 0U;
    }
    return count;
  }
  /// Counts the experts among the K best of any token.
  std::size_t distinct(const forecast& expected, std::size_t tokens) noexcept {
    std::size_t count = 0;
    std::ranges::fill(chosen_, std::uint8_t{0});
    for (std::size_t t = 0; t < tokens; ++t) {
      const auto row = expected.row(t, 0, experts_);
      for (std::size_t e = 0; e < experts_; ++e) ranked_[e] = detail::make_scored(row[e], e);
      std::ranges::nth_element(ranked_, ranked_.begin() + static_cast<std::ptrdiff_t>(top_k_) - 1,
                               std::greater<>());
      for (const auto s : std::span(ranked_).first(top_k_)) {
        auto& seen = chosen_[index_of(detail::expert_of(s))];
        count += seen == 0 ? 1U : 0U;
        seen = 1;
      }
    }
    return count;
  }

  config options_;
  std::size_t experts_;
  std::size_t top_k_;
  detail::layer_scores scores_;
  std::vector<detail::scored_expert> ranked_;
  std::vector<std::uint8_t> chosen_;
  std::vector<slot_id> spared_;  // resident slots of the k best
};

}  // namespace hotset
