// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The experts of a visit, each once, in the order in which policies hear of them.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/numbers/unique_ids.hpp"

namespace hotset::lab {

/// In order of last appearance, which for most visits is the order in which they are routed.
class distinct_experts {
 public:
  explicit distinct_experts(const geometry& shape)
      : unique_(shape.expert_count(), shape.ids_per_visit()),
        experts_(shape.distinct_per_visit()),
        places_(experts_.size()),
        in_order_(experts_.size()) {}

  /// Good until the next call.
  [[nodiscard]] std::span<const expert_id> of(id_view<expert_id> ids) noexcept {
    const auto count = std::size_t{unique_.collect(ids, experts_.data())};
    if (!unique_.repeated()) return std::span(experts_).first(count);
    unique_.last_appearance_order(ids, places_.data());
    for (std::size_t i = 0; i < count; ++i) in_order_[i] = experts_[places_[i]];
    return std::span(in_order_).first(count);
  }
  /// Ids of the last call that named no expert.
  [[nodiscard]] std::uint32_t ignored() const noexcept { return unique_.ignored(); }
  /// Whether the last call found it.
  [[nodiscard]] bool contains(expert_id id) const noexcept { return unique_.contains(id); }

 private:
  unique_ids unique_;
  std::vector<expert_id> experts_;
  std::vector<std::uint32_t> places_;
  std::vector<expert_id> in_order_;
};

}  // namespace hotset::lab
