// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How often each expert of a layer was used of late: two decaying rates, one of the last visits and one of the last hundreds.
///
/// Rule: with x = 1 for the experts of a visit and 0 for the others, n the layer's visits so far, this one included,
///       fast += a (x - fast), slow += b (x - slow), a = max(1 - 2^(-1/fast_half_life), 1/(n+1)), b likewise;
///       a layer's first visits are a plain mean. The rate of an expert is blend * fast + (1 - blend) * slow.
/// Promise: fused operations in a fixed order, so that every processor gets the same bits.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/platform/aligned_vector.hpp"
#include "hotset/predict/history/saved_history.hpp"
#include "hotset/predict/kernels/value_kernels.hpp"
#include "hotset/predict/refusals.hpp"

namespace hotset {

/// Threads: compatible. Nothing allocates after construction. Memory: 8 bytes a key, 8 an expert of one layer more.
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

  /// Pre: neither argument's validate() has a reason to refuse.
  two_rates(const geometry& shape, const config& options)
      : experts_(shape.expert_count()),
        fast_step_(step_of(options.fast_half_life)),
        slow_step_(step_of(options.slow_half_life)),
        blend_(static_cast<float>(options.blend)),
        fast_(shape.keys(), 0.0F),
        slow_(shape.keys(), 0.0F),
        visits_(shape.layer_count(), 0),
        ahead_fast_(experts_, 0.0F),
        ahead_slow_(experts_, 0.0F) {}

  /// A visit of `layer` uses `distinct`. Shape: [any], ids of the layer, each once. Complexity: O(experts), vectorised.
  void visit(layer_id layer, id_view<expert_id> distinct) noexcept {
    take_in(layer, distinct, {fast_row(layer), slow_row(layer)});
    auto& visits = visits_[layer];
    if (visits < most_visits) ++visits;
  }
  /// Shapes: [experts].
  struct rates {
    std::span<const float> fast;
    std::span<const float> slow;
  };
  /// What the layer's rates would be after such a visit, which leaves no trace; good until the next call. As of visit().
  [[nodiscard]] rates after(layer_id layer, id_view<expert_id> distinct) noexcept {
    take_in(layer, distinct, {ahead_fast_, ahead_slow_});
    return {ahead_fast_, ahead_slow_};
  }

  /// Writes what has taken place. Pre: `to` is of this geometry.
  void save(saved_history& to) const {
    to.fast.assign(fast_.begin(), fast_.end());
    to.slow.assign(slow_.begin(), slow_.end());
    to.visits = visits_.values();
  }
  /// Pre: saved.check() has no reason to refuse.
  void restore(const saved_history& saved) noexcept {
    std::copy_n(saved.fast.data(), fast_.size(), fast_.data());
    std::copy_n(saved.slow.data(), slow_.size(), slow_.data());
    std::copy_n(saved.visits.data(), visits_.size(), visits_.data());
  }

  /// Shape: [experts].
  [[nodiscard]] std::span<const float> fast(layer_id layer) const noexcept {
    return std::span(fast_).subspan(begin(layer), experts_);
  }
  [[nodiscard]] std::span<const float> slow(layer_id layer) const noexcept {
    return std::span(slow_).subspan(begin(layer), experts_);
  }
  /// blend * fast + (1 - blend) * slow.
  [[nodiscard]] float rate(float fast, float slow) const noexcept {
    return std::fma(blend_, fast, (1.0F - blend_) * slow);
  }
  [[nodiscard]] float blend() const noexcept { return blend_; }

 private:
  /// Both steps have reached their least long before.
  static constexpr std::uint32_t most_visits = saved_history::most_visits;

  struct rows {
    std::span<float> fast;
    std::span<float> slow;
  };

  void take_in(layer_id layer, id_view<expert_id> distinct, rows to) noexcept {
    const float least = 1.0F / (static_cast<float>(visits_[layer] + 1) + 1.0F);
    const float fast_step = std::max(fast_step_, least);
    const float slow_step = std::max(slow_step_, least);
    value_kernels::decay(fast_row(layer), fast_step, to.fast, level_);
    value_kernels::decay(slow_row(layer), slow_step, to.slow, level_);
    for (const auto id : distinct) {
      const auto e = index_of(id);
      to.fast[e] += fast_step;
      to.slow[e] += slow_step;
    }
  }
  static float step_of(double half_life) {
    return static_cast<float>(1 - std::exp2(-1 / half_life));
  }
  [[nodiscard]] std::size_t begin(layer_id layer) const noexcept {
    return index_of(layer) * experts_;
  }
  [[nodiscard]] std::span<float> fast_row(layer_id layer) noexcept {
    return std::span(fast_).subspan(begin(layer), experts_);
  }
  [[nodiscard]] std::span<float> slow_row(layer_id layer) noexcept {
    return std::span(slow_).subspan(begin(layer), experts_);
  }

  std::size_t experts_;
  float fast_step_;
  float slow_step_;
  float blend_;
  vector_level level_ = best_vector_level();
  aligned_vector<float> fast_;        // [key]
  aligned_vector<float> slow_;        // [key]
  per_layer<std::uint32_t> visits_;   // [layer]
  aligned_vector<float> ahead_fast_;  // [expert]
  aligned_vector<float> ahead_slow_;  // [expert]
};

}  // namespace hotset
