// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Recent use of each expert of a layer: two decaying rates, one over the last visits and one over the last hundreds.
///
/// Rule: with x = 1 for the experts of a visit and 0 for the others, n the layer's visits so far, this one included,
///       fast += a (x - fast), slow += b (x - slow), a = max(1 - 2^(-1/fast_half_life), 1/(n+1)), b likewise; so the
///       rates of a layer's first visits are a plain mean. The rate of an expert is blend * fast + (1 - blend) *
///       slow.
/// Promise: fused operations in a fixed order; every processor gets the same bits.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/platform/aligned_vector.hpp"
#include "hotset/policy/policy_config.hpp"
#include "hotset/predict/history/saved_history.hpp"
#include "hotset/predict/kernels/value_kernels.hpp"

namespace hotset {

/// Threads: compatible. Nothing allocates after construction. Memory: 8 bytes a key, and 8 bytes an expert of one
/// layer.
class two_rates {
 public:
  struct config {
    double fast_half_life = 2;    ///< in visits of the layer
    double slow_half_life = 128;  ///< in visits of the layer
    double blend = 0.4;           ///< share of the fast rate

    [[nodiscard]] validation validate() const {
      const auto half_life = [](std::string_view name, double visits) {
        return detail::refuse_unless(visits >= 0.01 && visits <= 1e6, name, visits,
                                     "0.01..1000000");
      };
      return detail::first_of(
          {half_life("rates fast_half_life", fast_half_life),
           half_life("rates slow_half_life", slow_half_life),
           detail::refuse_unless(blend >= 0 && blend <= 1, "rates blend", blend, "0..1")});
    }
  };

  /// Pre: both arguments' validate() return no error.
  two_rates(const geometry& shape, const config& options)
      : blend_(static_cast<float>(options.blend)),
        fast_(shape, options.fast_half_life),
        slow_(shape, options.slow_half_life),
        visits_(shape.layer_count(), 0) {}

  /// Records a visit that used `distinct`. Shape: [any], ids of the layer, each once. Complexity: O(experts),
  /// vectorised.
  void visit(layer_id layer, id_view<expert_id> distinct) noexcept {
    (void)after(layer, distinct);
    keep(layer);
  }
  /// Shapes: [experts].
  struct rates {
    std::span<const float> fast;
    std::span<const float> slow;
  };
  /// Returns the rates after such a visit without recording it; valid until the next call. Shape and complexity:
  /// those of visit().
  [[nodiscard]] rates after(layer_id layer, id_view<expert_id> distinct) noexcept {
    const float least = 1.0F / (static_cast<float>(visits_[layer] + 1) + 1.0F);
    for (auto* of : {&fast_, &slow_}) {
      const float step = std::max(of->step, least);
      value_kernels::decay(of->row(layer), step, of->ahead, level_);
      for (const auto id : distinct) of->ahead[index_of(id)] += step;
    }
    return {fast_.ahead, slow_.ahead};
  }
  /// Records the visit that the last after() computed. Pre: the last call was after() with this layer.
  void keep(layer_id layer) noexcept {
    for (auto* of : {&fast_, &slow_}) std::ranges::copy(of->ahead, of->row(layer).begin());
    visits_[layer] = std::min(visits_[layer] + 1, saved_history::most_visits);
  }

  /// Writes the recorded rates. Pre: `to` has this geometry.
  void save(saved_history& to) const {
    to.fast.assign(fast_.now.begin(), fast_.now.end());
    to.slow.assign(slow_.now.begin(), slow_.now.end());
    to.visits = visits_.values();
  }
  /// Pre: saved.check() returns no error.
  void restore(const saved_history& saved) noexcept {
    std::ranges::copy(saved.fast, fast_.now.begin());
    std::ranges::copy(saved.slow, slow_.now.begin());
    std::ranges::copy(saved.visits, visits_.begin());
  }

  /// Shape: [experts].
  [[nodiscard]] std::span<const float> fast(layer_id layer) const noexcept {
    return fast_.row(layer);
  }
  [[nodiscard]] std::span<const float> slow(layer_id layer) const noexcept {
    return slow_.row(layer);
  }
  /// blend * fast + (1 - blend) * slow.
  [[nodiscard]] float rate(float fast, float slow) const noexcept {
    return std::fma(blend_, fast, (1.0F - blend_) * slow);
  }
  [[nodiscard]] float blend() const noexcept { return blend_; }

 private:
  struct decaying {
    decaying(const geometry& shape, double half_life)
        : step(static_cast<float>(1 - std::exp2(-1 / half_life))),
          now(shape.keys(), 0.0F),
          ahead(shape.expert_count(), 0.0F) {}
    [[nodiscard]] std::span<float> row(layer_id layer) noexcept {
      return std::span(now).subspan(index_of(layer) * ahead.size(), ahead.size());
    }
    [[nodiscard]] std::span<const float> row(layer_id layer) const noexcept {
      return std::span(now).subspan(index_of(layer) * ahead.size(), ahead.size());
    }
    float step;
    aligned_vector<float> now;    ///< [layers, experts]
    aligned_vector<float> ahead;  ///< [experts] after a visit that may take place
  };

  float blend_;
  vector_level level_ = best_vector_level();
  decaying fast_;
  decaying slow_;
  per_layer<std::uint32_t> visits_;
};

}  // namespace hotset
