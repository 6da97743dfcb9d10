// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Hotness of each expert of a layer: its uses by the last tokens, discounted by age.
///
/// Rule: u(e) = sum over the last `window` tokens of the layer of gamma^age * [the token's router chose e]; the last
///       token has age 0, and gamma^0 is 1 for gamma = 0 too.
/// Source: ActiveEvict 3.2, equation 8.
/// Deviations: the paper gives no values; the defaults lose fewest experts on recorded traces. The router's choice
///       counts, before any routing policy shortens it.
/// Exact: yes (never changes what is computed).
/// Cost: O(K) per token; a layer's hotness O(window K), once per change. Sums run over ascending ages, so that equal
///       uses give equal sums. Estimates cost O(K) per token and do not have this property.
///       Memory: 4 bytes x layers x window x K, 20 bytes per key, 4 an expert.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/ids/per_key.hpp"
#include "hotset/core/numbers/unique_ids.hpp"
#include "hotset/policy/policy_config.hpp"

namespace hotset {

/// No allocation after construction. Threads: compatible.
class hotness {
 public:
  struct config {
    double gamma = 0.98;        ///< factor on a use's weight, per token of age
    std::int32_t window = 256;  ///< remembered tokens of a layer
    static constexpr std::int32_t max_window = 65536;

    [[nodiscard]] validation validate() const {
      return detail::first_of(
          {detail::refuse_unless(gamma >= 0.0 && gamma <= 1.0, "hotness gamma", gamma, "0..1"),
           detail::within("hotness window", window, 1, max_window)});
    }
  };

  /// Pre: options.validate() returns no error.
  hotness(const geometry& shape, const config& options)
      : experts_(shape.expert_count()),
        top_k_(shape.ranks()),
        window_(options.gamma == 0.0 ? 1 : static_cast<std::size_t>(options.window)),
        rings_(shape.layer_count()),
        distinct_(experts_, top_k_),
        ids_(rings_.size() * window_ * top_k_, no_expert),
        heat_(shape, 0.0),
        estimate_(shape, 0.0),
        uses_(shape, 0) {
    worth_.reserve(window_);
    for (double worth = 1.0; worth_.size() < window_; worth *= options.gamma)
      worth_.push_back(worth);
    gained_.assign(window_, 1.0);
    lost_.assign(window_, 1.0);
    if (!(worth_.back() > least_estimated)) return;
    for (std::size_t n = 0; n < window_; ++n) {
      if (options.gamma > 0.0) gained_[n] = (n == 0 ? 1.0 : gained_[n - 1]) / options.gamma;
      lost_[n] = worth_[window_ - 1 - n];
    }
    const auto tokens = static_cast<double>(window_) + 1;
    estimate_error_ = 4 * tokens * tokens * std::numeric_limits<double>::epsilon();
  }

  /// Records a visit's tokens, in order. Shape: [tokens * top_k]; ids outside the model, and repeated ids of one
  /// token, do not count. Pre: the model has the layer.
  void observe(layer_id layer, id_view<expert_id> chosen) noexcept {
    auto& ring = rings_[layer];
    for (std::size_t first = 0; first + top_k_ <= chosen.size(); first += top_k_) {
      const auto token = chosen.subspan(first, top_k_);
      const auto kept = place(layer, ring.next);
      lose(layer, kept, lost_[ring.next]);
      const auto count = distinct_.collect(token, kept.data());
      std::ranges::fill(kept.subspan(count), no_expert);
      gain(layer, kept, gained_[ring.next]);
      ring.next = ring.next + 1 == window_ ? 0 : ring.next + 1;
      ring.tokens = std::min(ring.tokens + 1, window_);
      ring.fresh = false;
      if (ring.next == 0 && can_estimate())
        std::ranges::copy(of(layer), estimate_.row(layer).begin());
    }
  }
  /// Returns u. Shape: [experts]. Valid until the layer's next visit. Pre: the model has the layer.
  [[nodiscard]] std::span<const double> of(layer_id layer) noexcept {
    auto& ring = rings_[layer];
    const auto heat = heat_.row(layer);
    if (!ring.fresh) add_up(layer, ring, heat);
    ring.fresh = true;
    return heat;
  }
  /// Returns u times a factor common to the layer's experts. Shape: [experts]. 0 if the expert was not used, else
  /// with a relative error of at most estimate_error(). Pre: the model has the layer.
  [[nodiscard]] std::span<const double> estimates(layer_id layer) const noexcept {
    return estimate_.row(layer);
  }
  /// Relative error of estimates; infinite if weights decay too fast for estimates.
  [[nodiscard]] double estimate_error() const noexcept { return estimate_error_; }
  /// Returns false only if u is 0. Pre: the model has the key.
  [[nodiscard]] bool is_used(expert_key key) const noexcept { return uses_[key] != 0; }

 private:
  /// Smallest weight of a use for which estimates are kept: far above underflow.
  static constexpr double least_estimated = 1e-100;

  /// Ring of the last tokens of one layer.
  struct recent_tokens {
    std::size_t next = 0;    ///< place of the next token, which holds the oldest one
    std::size_t tokens = 0;  ///< tokens in the ring, at most `window`
    bool fresh = true;       ///< heat_ matches the tokens
  };

  [[nodiscard]] std::span<expert_id> place(layer_id layer, std::size_t n) noexcept {
    return std::span(ids_).subspan((index_of(layer) * window_ + n) * top_k_, top_k_);
  }
  [[nodiscard]] bool can_estimate() const noexcept {
    return estimate_error_ != std::numeric_limits<double>::infinity();
  }
  // Between two turns of the ring, recorded uses keep their weight and each new use weighs more than those before, so
  // only one expert's estimate changes. Estimates are recomputed at each turn.
  void gain(layer_id layer, std::span<const expert_id> token, double worth) noexcept {
    const auto estimates = estimate_.row(layer);
    const auto uses = uses_.row(layer);
    for (const auto id : token) {
      if (id < 0) continue;
      estimates[index_of(id)] += worth;
      ++uses[index_of(id)];
    }
  }
  void lose(layer_id layer, std::span<const expert_id> token, double worth) noexcept {
    const auto estimates = estimate_.row(layer);
    const auto uses = uses_.row(layer);
    for (const auto id : token) {
      if (id < 0) continue;
      const bool is_last = --uses[index_of(id)] == 0;
      estimates[index_of(id)] = is_last ? 0.0 : estimates[index_of(id)] - worth;
    }
  }
  void add_up(layer_id layer, const recent_tokens& ring, std::span<double> heat) noexcept {
    std::ranges::fill(heat, 0.0);
    auto next = ring.next;
    for (std::size_t age = 0; age < ring.tokens; ++age) {
      const auto worth = worth_[age];
      if (worth == 0.0) break;
      next = next == 0 ? window_ - 1 : next - 1;
      for (const auto id : place(layer, next))
        if (id >= 0) heat[index_of(id)] += worth;
    }
  }

  std::size_t experts_;
  std::size_t top_k_;
  std::size_t window_;
  std::vector<double> worth_;       // [age]
  per_layer<recent_tokens> rings_;  // [layers]
  unique_ids distinct_;
  std::vector<expert_id> ids_;   // [layers, window, top_k]; each token's distinct experts, then -1
  per_key<double> heat_;         // [layers, experts]
  per_key<double> estimate_;     // [layers, experts]
  per_key<std::uint32_t> uses_;  // [layers, experts] uses by tokens of the window
  // [place in the ring] weight that the token there adds to an estimate.
  std::vector<double> gained_;
  std::vector<double> lost_;  // [place in the ring] weight that the replaced token had added
  double estimate_error_ = std::numeric_limits<double>::infinity();
};

}  // namespace hotset
