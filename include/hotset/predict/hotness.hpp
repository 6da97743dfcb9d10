// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How hot each expert of a layer is: its uses by the last tokens, each worth less the older it is.
///
/// Rule: u(e) = sum over the last `window` tokens of the layer of gamma^age * [the token's router chose e]; the last
///       token has the age 0, and gamma^0 is 1 for gamma = 0 too.
/// Source: ActiveEvict 3.2, equation 8.
/// Deviations: the paper gives no values; these lose fewest experts on recorded traces. What the router chose counts, before
///       any routing policy shortens it.
/// Exact: yes (never changes what is computed).
/// Cost: O(K) per token; a layer's heat O(window K), once per change. Sums run over ascending ages, so that equal uses
///       make equal sums; estimates, which do not, cost O(K) per token. Memory: 4 bytes x layers x window x K, 20 bytes per key, 4 an expert.

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
#include "hotset/predict/refusals.hpp"

namespace hotset {

/// No allocation after construction. Threads: compatible.
class hotness {
 public:
  struct config {
    double gamma = 0.98;        ///< of a use's worth, per token
    std::int32_t window = 256;  ///< tokens of a layer that are remembered
    static constexpr std::int32_t max_window = 65536;

    [[nodiscard]] validation validate() const {
      return detail::first_of(
          {detail::refuse_unless(gamma >= 0.0 && gamma <= 1.0, "hotness gamma", gamma, "0..1"),
           detail::within("hotness window", window, 1, max_window)});
    }
  };

  /// Pre: options.validate() has no reason to refuse.
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

  /// Takes in a visit's tokens, in order. Shape: [tokens * top_k]; ids that name no expert, or one that the token has named
  /// before, do not count. Pre: the model has the layer.
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
  /// Shape: [experts], u. Good until the layer's next visit. Pre: the model has the layer.
  [[nodiscard]] std::span<const double> of(layer_id layer) noexcept {
    auto& ring = rings_[layer];
    const auto heat = heat_.row(layer);
    if (!ring.fresh) add_up(layer, ring, heat);
    ring.fresh = true;
    return heat;
  }
  /// Shape: [experts], u times a factor that the layer's experts have in common. 0 where nothing was used, else off by
  /// estimate_error() of itself at most. Pre: the model has the layer.
  [[nodiscard]] std::span<const double> estimates(layer_id layer) const noexcept {
    return estimate_.row(layer);
  }
  /// Infinite where uses lose their worth so fast that nothing can be estimated.
  [[nodiscard]] double estimate_error() const noexcept { return estimate_error_; }
  /// False only where u is 0. Pre: the model has the key.
  [[nodiscard]] bool is_used(expert_key key) const noexcept { return uses_[key] != 0; }

 private:
  /// What a use counts at least, for estimates: far from where numbers lose their digits.
  static constexpr double least_estimated = 1e-100;

  /// The tokens of one layer.
  struct recent_tokens {
    std::size_t next = 0;    ///< the place of the token to come, which is the oldest one's
    std::size_t tokens = 0;  ///< that were seen, at most a window of them
    bool fresh = true;       ///< the layer's heat is that of its tokens
  };

  [[nodiscard]] std::span<expert_id> place(layer_id layer, std::size_t n) noexcept {
    return std::span(ids_).subspan((index_of(layer) * window_ + n) * top_k_, top_k_);
  }
  [[nodiscard]] bool can_estimate() const noexcept {
    return estimate_error_ != std::numeric_limits<double>::infinity();
  }
  // Between two turns of the ring, where estimates begin anew, uses that were counted keep their worth, and each new one is worth
  // more than those before: nothing else of a layer changes.
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
  std::vector<expert_id> ids_;   // [layers, window, top_k]; each token's distinct ones, then -1
  per_key<double> heat_;         // [layers, experts]
  per_key<double> estimate_;     // [layers, experts]
  per_key<std::uint32_t> uses_;  // [layers, experts] tokens of the window
  std::vector<double> gained_;   // [place in the ring] what the token there adds to an estimate
  std::vector<double> lost_;     // [place in the ring] what the token before it had added
  double estimate_error_ = std::numeric_limits<double>::infinity();
};

}  // namespace hotset
