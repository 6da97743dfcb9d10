// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The visits of a step that a sequence's similarities do not show yet: which layers, and what its last token routed in each.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/platform/assert.hpp"

namespace hotset {

/// A list for each of `sequences`, of at most `layers` visits. Threads: compatible. Nothing allocates after construction.
/// Memory: 4 * layers * (top_k + 1) bytes a sequence.
class visit_log {
 public:
  visit_log(std::size_t sequences, std::size_t layers, std::size_t top_k)
      : most_(layers),
        top_k_(top_k),
        counts_(sequences, 0),
        layers_(sequences * layers),
        ids_(sequences * layers * top_k, no_expert) {}

  static constexpr std::uint64_t bytes_for(std::uint64_t sequences, std::uint64_t layers,
                                           std::uint64_t top_k) noexcept {
    return sequences * layers * (top_k + 1) * sizeof(expert_id);
  }

  [[nodiscard]] bool is_empty(std::size_t sequence) const noexcept {
    return counts_[sequence] == 0;
  }
  /// Shape of ids: [top_k]. Pre: the list has room.
  void add(std::size_t sequence, layer_id layer, id_view<expert_id> ids) noexcept {
    HOTSET_ASSERT(ids.size() == top_k_ && counts_[sequence] < most_);
    const auto at = sequence * most_ + counts_[sequence]++;
    layers_[at] = layer;
    ids.copy_to(ids_.data() + at * top_k_);
  }
  /// Calls take(layer, ids) for each visit, the first one first.
  template <class Take>
  void each(std::size_t sequence, Take take) const noexcept {
    const auto first = sequence * most_;
    for (auto at = first; at < first + counts_[sequence]; ++at)
      take(layers_[at], std::span(ids_).subspan(at * top_k_, top_k_));
  }
  /// The list becomes that of another log of the same shape.
  void copy(std::size_t sequence, const visit_log& from) noexcept {
    const auto first = sequence * most_;
    const auto count = counts_[sequence] = from.counts_[sequence];
    std::copy_n(from.layers_.data() + first, count, layers_.data() + first);
    std::copy_n(from.ids_.data() + first * top_k_, count * top_k_, ids_.data() + first * top_k_);
  }
  void clear(std::size_t sequence) noexcept { counts_[sequence] = 0; }

 private:
  std::size_t most_;
  std::size_t top_k_;
  std::vector<std::size_t> counts_;
  std::vector<layer_id> layers_;  // [sequence, visit]
  std::vector<expert_id> ids_;    // [sequence, visit, top_k]
};

}  // namespace hotset
