// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Favours resident experts when the router's logits are close.
///
/// Rule: z' = z + lambda * delta * [resident]; a token takes the top-k of z', descending, ties to the lower id. delta
///   is a layer's mean over its visits, the running one included, of the logits' range (max - min, mean over tokens).
///   Weights come from z: softmax over the selected. With lambda = 0 the router's own selection is unchanged, and so
///   are its weights if the view has them.
/// Source: SpecMD 3.1.1, equation 1; Skliar et al.
/// Deviations: SpecMD calls delta the "historical average logit value", which a constant added to all logits would
///   change and which may be negative. `average = value` uses it; the default is Skliar's range. The running visit
///   counts, so that the first one has a delta. A logit that is not finite is masked: never selected, in no average.
///   If a token has fewer than k others, its ids end in -1 of weight 0.
/// Exact: no.
/// Cost: O(E log k) and k exponentials per token. Memory: 12 bytes per expert, 16 per layer.

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
#include "hotset/policy/routing_policy.hpp"

namespace hotset {

/// Quantity that cache_aware averages.
enum class logit_average : std::uint8_t { range, value };

class cache_aware {
 public:
  struct config {
    double lambda = 0.3;
    logit_average average = logit_average::range;
    /// Parameters by name, as in `cache_aware:lambda=0.3`.
    template <class From>
    static config read(From& from) {
      return {.lambda = from.real("lambda", config{}.lambda),
              .average = static_cast<logit_average>(from.choice("average", {"range", "value"}, 0))};
    }
    [[nodiscard]] validation validate() const {
      if (!(lambda >= 0.0))
        return refusal("cache_aware lambda = ", lambda, ", accepted: 0 or more");
      if (lambda > std::numeric_limits<double>::max())
        return refusal("cache_aware lambda = ", lambda, ", accepted: a finite number");
      return detail::one_of("cache_aware average", average, {"range", "value"});
    }
  };
  static constexpr std::string_view name = "cache_aware";
  static constexpr routing_traits traits{.needs_logits = true};

  cache_aware(const geometry& shape, const config& options)
      : options_(options),
        top_k_(shape.ranks()),
        history_(shape.layer_count()),
        biased_(shape.expert_count(), 0.0),
        order_(biased_.size()) {}

  /// `weights` may be empty if they are not wanted. Errors: invalid_visit without logits, or if the layer or an
  /// array's length is not the model's; then the average is unchanged.
  status route(const routing_view& view, const residency_view& residents,
               std::span<expert_id> selected, std::span<float> weights) noexcept {
    if (!fits(view, residents, selected, weights)) return status::invalid_visit;
    const double boost = options_.lambda * average_with(view);
    const bool bent = options_.lambda > 0.0;
    const bool given = !bent && view.weights.size() == selected.size();
    if (!bent) hand_on(view, selected, given ? weights : std::span<float>{});
    for (std::size_t token = 0; token * top_k_ < selected.size(); ++token) {
      const auto z = logits_of(view, token);
      const auto ids = selected.subspan(token * top_k_, top_k_);
      if (bent) select(z, residents, boost, ids);
      if (!given && !weights.empty()) weigh(z, ids, weights.subspan(token * top_k_, top_k_));
    }
    return status::ok;
  }

 private:
  struct running_mean {
    double value = 0.0;
    std::uint64_t visits = 0;
  };

  [[nodiscard]] bool fits(const routing_view& view, const residency_view& residents,
                          id_view<expert_id> selected,
                          std::span<const float> weights) const noexcept {
    const auto places = view.experts.size();
    return index_of(view.layer) < history_.size() &&  // false for negative layers too
           places % top_k_ == 0 && view.logits.size() == places / top_k_ * biased_.size() &&
           residents.row.size() == biased_.size() && selected.size() == places &&
           (weights.empty() || weights.size() == places);
  }
  [[nodiscard]] std::span<const float> logits_of(const routing_view& view,
                                                 std::size_t token) const noexcept {
    return view.logits.subspan(token * biased_.size(), biased_.size());
  }
  static bool counts(float z) noexcept { return std::isfinite(z); }

  /// Adds the visit to the layer's average and returns it.
  [[nodiscard]] double average_with(const routing_view& view) noexcept {
    double sum = 0.0;
    std::uint64_t tokens = 0;
    for (std::size_t token = 0; token * top_k_ < view.experts.size(); ++token) {
      double least = std::numeric_limits<double>::max();
      double most = std::numeric_limits<double>::lowest();
      double total = 0.0;
      std::uint64_t finite = 0;
      for (const float z : logits_of(view, token)) {
        if (!counts(z)) continue;
        least = std::min<double>(least, z);
        most = std::max<double>(most, z);
        total += z;
        ++finite;
      }
      if (finite == 0) continue;
      sum += options_.average == logit_average::range ? most - least
                                                      : total / static_cast<double>(finite);
      ++tokens;
    }
    auto& mean = history_[view.layer];
    if (tokens == 0) return mean.value;
    ++mean.visits;
    const double visit = sum / static_cast<double>(tokens);
    mean.value += (visit - mean.value) / static_cast<double>(mean.visits);
    return mean.value;
  }
  void select(std::span<const float> z, const residency_view& residents, double boost,
              std::span<expert_id> ids) noexcept {
    std::size_t finite = 0;
    for (std::size_t e = 0; e < z.size(); ++e) {
      if (!counts(z[e])) continue;
      const auto id = static_cast<expert_id>(e);
      biased_[id] = residents.row[e] >= 0 ? z[e] + boost : z[e];
      order_[finite++] = id;
    }
    const auto chosen = std::min(ids.size(), finite);
    std::partial_sort(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(chosen),
                      order_.begin() + static_cast<std::ptrdiff_t>(finite),
                      [this](expert_id a, expert_id b) {
                        const double za = biased_[a];
                        const double zb = biased_[b];
                        return za != zb ? za > zb : a < b;
                      });
    std::copy_n(order_.begin(), chosen, ids.begin());
    std::fill(ids.begin() + static_cast<std::ptrdiff_t>(chosen), ids.end(), no_expert);
  }
  /// Computes gate weights of the selected experts from the original logits.
  void weigh(std::span<const float> z, id_view<expert_id> ids,
             std::span<float> weights) const noexcept {
    const auto of = [z](expert_id id) {
      const auto e = static_cast<std::size_t>(static_cast<std::uint32_t>(id));
      return e < z.size() && counts(z[e]) ? z[e] : -std::numeric_limits<float>::infinity();
    };
    double most = std::numeric_limits<double>::lowest();
    double sum = 0.0;
    for (const auto id : ids) most = std::max(most, double{of(id)});
    for (const auto id : ids) sum += std::exp(double{of(id)} - most);
    for (std::size_t n = 0; n < ids.size(); ++n)
      weights[n] = sum > 0.0 ? static_cast<float>(std::exp(of(ids[n]) - most) / sum) : 0.0F;
  }

  config options_;
  std::size_t top_k_;
  per_layer<running_mean> history_;  // [layer]
  per_expert<double> biased_;        // [expert] z' of the current token
  std::vector<expert_id> order_;     // scratch
};

static_assert(routing_policy<cache_aware>);

}  // namespace hotset
