// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Latest forecast probability of each expert in the coming layers, to compare a prefetch with its victim.

#include <cstddef>
#include <span>
#include <vector>

#include "hotset/core/forecast.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/visit_event.hpp"

namespace hotset {

/// Memory: 4 bytes per key. No allocation after construction.
class expected_uses {
 public:
  expected_uses() = default;
  explicit expected_uses(const geometry& shape)
      : layers_(shape.layer_count()),
        experts_(shape.expert_count()),
        likely_(shape.keys(), 0.0F),
        step_(layers_, 0) {}

  /// Stores the largest probability that any token gives each expert of the layers ahead. Ignores the layers of the
  /// next step.
  void take(const visit_context& context, const forecast& expected) noexcept {
    expected.each_layer(context.layer, layers_, experts_, [&](layer_id layer, std::int32_t ahead) {
      const auto l = index_of(layer);
      expected.write_most(ahead, std::span(likely_).subspan(l * experts_, experts_));
      step_[l] = mark_of(context.step);
    });
  }
  /// True if the key is expected in the request's visit or before it, with at least the same probability. Expectations
  /// for the running visit `now` or earlier ones no longer count.
  [[nodiscard]] bool sooner(expert_key key, const prefetch_request& request,
                            const visit_context& now) const noexcept {
    const auto layer = index_of(key.layer);
    if (step_[layer] == 0) return false;
    const auto step = step_[layer];
    const auto running = mark_of(now.step);
    const auto wanted = mark_of(request.for_step);
    if (step < running || (step == running && key.layer <= now.layer)) return false;
    if (step > wanted || (step == wanted && key.layer > request.key.layer)) return false;
    return likely_[layer * experts_ + index_of(key.expert)] >= request.probability;
  }

 private:
  std::size_t layers_ = 0;
  std::size_t experts_ = 0;
  std::vector<float> likely_;  ///< [layers][experts]
  std::vector<step_id> step_;  ///< [layers] mark of the forecast's step; 0: none
};

}  // namespace hotset
