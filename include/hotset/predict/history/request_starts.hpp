// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Tells when requests begin, for what is known of one request alone.

#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "hotset/core/geometry.hpp"
#include "hotset/core/routing_view.hpp"

namespace hotset {

/// No allocation after construction.
class request_starts {
 public:
  explicit request_starts(const geometry& shape) { running_.reserve(shape.tokens_per_visit()); }

  /// True of a step's first view if its sequences were none of the step before's. Views that name no sequences are all
  /// of one. Complexity: O(tokens^2) once per step, O(1) for its other views.
  [[nodiscard]] bool begins(const routing_view& view) noexcept {
    if (view.step == step_) return false;
    step_ = view.step;
    const auto named = view.sequences.first(std::min(view.sequences.size(), running_.capacity()));
    const auto runs = [&](sequence_id s) {
      return std::ranges::find(running_, s) != running_.end();
    };
    const bool first =
        named.empty() ? !running_.empty() || !seen_ : std::ranges::none_of(named, runs);
    running_.assign(named.begin(), named.end());
    seen_ = true;
    return first;
  }

 private:
  step_id step_ = std::numeric_limits<step_id>::max();
  bool seen_ = false;
  std::vector<sequence_id> running_;  // of the last step, one a token
};

}  // namespace hotset
