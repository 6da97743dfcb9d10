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
/// Cost: O(K^2) per token; a layer's heat O(window K), once per change. Sums run over ascending ages, so that equal uses
///       make equal sums. Memory: 4 bytes x layers x window x K, 8 bytes per key.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/ids/per_key.hpp"

namespace hotset::inline v0 {

/// No allocation after construction. Threads: compatible.
class hotness {
 public:
  struct config {
    double gamma = 0.98;        ///< of a use's worth, per token
    std::int32_t window = 256;  ///< tokens of a layer that are remembered
    static constexpr std::int32_t max_window = 65536;

    [[nodiscard]] validation validate() const {
      if (!(gamma >= 0.0 && gamma <= 1.0))
        return error{"hotness gamma = " + std::to_string(gamma) + ", accepted: 0..1"};
      if (window < 1 || window > max_window)
        return error{"hotness window = " + std::to_string(window) + ", accepted: 1.." +
                     std::to_string(max_window)};
      return std::nullopt;
    }
  };

  /// Pre: options.validate() has no reason to refuse.
  hotness(const geometry& shape, const config& options)
      : experts_(shape.expert_count()),
        top_k_(shape.ranks()),
        window_(static_cast<std::size_t>(options.window)),
        rings_(shape.layer_count()),
        ids_(rings_.size() * window_ * top_k_, no_expert),
        heat_(shape, 0.0) {
    worth_.reserve(window_);
    for (double worth = 1.0; worth_.size() < window_; worth *= options.gamma)
      worth_.push_back(worth);
  }

  /// Takes in a visit's tokens, in order. Shape: [tokens * top_k]; ids that name no expert, or one that the token has named
  /// before, do not count. Pre: the model has the layer.
  void observe(layer_id layer, id_view<expert_id> chosen) noexcept {
    auto& ring = rings_[layer];
    for (std::size_t first = 0; first + top_k_ <= chosen.size(); first += top_k_) {
      const auto token = chosen.subspan(first, top_k_);
      const auto kept = place(layer, ring.next);
      for (std::size_t k = 0; k < top_k_; ++k) kept[k] = is_new(token, k) ? token[k] : no_expert;
      ring.next = ring.next + 1 == window_ ? 0 : ring.next + 1;
      ring.fresh = false;
    }
  }
  /// Shape: [experts], u. Good until the layer's next visit. Pre: the model has the layer.
  [[nodiscard]] std::span<const double> of(layer_id layer) noexcept {
    auto& ring = rings_[layer];
    const auto heat = heat_.row(layer);
    if (!ring.fresh) add_up(layer, ring.next, heat);
    ring.fresh = true;
    return heat;
  }

 private:
  /// The tokens of one layer.
  struct recent_tokens {
    std::size_t next = 0;  ///< the place of the token to come, which is the oldest one's
    bool fresh = true;     ///< the layer's heat is that of its tokens
  };

  [[nodiscard]] std::span<expert_id> place(layer_id layer, std::size_t n) noexcept {
    return std::span(ids_).subspan((index_of(layer) * window_ + n) * top_k_, top_k_);
  }
  [[nodiscard]] bool is_new(id_view<expert_id> token, std::size_t k) const noexcept {
    const auto id = token[k];
    const auto before = token.first(k);
    return id >= 0 && index_of(id) < experts_ &&
           std::find(before.begin(), before.end(), id) == before.end();
  }
  void add_up(layer_id layer, std::size_t next, std::span<double> heat) noexcept {
    std::ranges::fill(heat, 0.0);
    for (std::size_t age = 0; age < window_; ++age) {
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
  std::vector<expert_id> ids_;      // [layers, window, top_k]; -1 where nothing counts
  per_key<double> heat_;            // [layers, experts]
};

}  // namespace hotset::inline v0
