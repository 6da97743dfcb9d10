// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A visit that owns its view's arrays.

#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/routing_view.hpp"

namespace hotset::support {

struct token_visit {
  layer_id layer{};
  step_id step = 0;
  std::vector<expert_id> ids{};
  std::vector<sequence_id> sequences{};

  [[nodiscard]] routing_view view() const {
    return {.layer = layer, .step = step, .experts = ids, .sequences = sequences};
  }
};

}  // namespace hotset::support
