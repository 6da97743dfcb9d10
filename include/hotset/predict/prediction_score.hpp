// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Measures precision and recall of prefetch requests against the routing that followed.

#include <array>
#include <cstddef>
#include <cstdint>

#include "hotset/core/forecast.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/ids/per_key.hpp"
#include "hotset/core/routing_view.hpp"

namespace hotset {

/// The requests for a visit (step, layer) are scored when that visit is routed, each key once. Requests whose visit
/// does not come, or came before, are not scored.
/// A layer may have requests for two steps at once, the running one and the next. Requests for a later step discard
/// those for the step two before it.
/// Complexity: O(1) per request, O(ids) per visit. Memory: 16 bytes per key. No allocation after construction.
class prediction_score {
 public:
  /// precision = predicted_and_routed / predicted, recall = predicted_and_routed / routed.
  struct counts {
    std::uint64_t predicted = 0;             ///< distinct keys requested, over the scored visits
    std::uint64_t predicted_and_routed = 0;  ///< predicted keys that the visit routed
    /// Distinct experts of all visits, including experts without a request.
    std::uint64_t routed = 0;
    friend bool operator==(const counts&, const counts&) = default;
  };

  explicit prediction_score(const geometry& shape)
      : layers_(shape.layers),
        experts_(shape.experts),
        batches_(shape.layer_count()),
        asked_in_(shape),
        seen_in_(shape.expert_count(), 0) {}

  /// Records a request. Keys outside the model are ignored.
  void requested(const prefetch_request& request) noexcept {
    const auto [layer, expert] = request.key;
    if (layer < 0 || layer >= layers_ || expert < 0 || expert >= experts_) return;
    auto& batch = batches_[layer][parity(request.for_step)];
    if (batch.serial == 0 || batch.step != request.for_step)
      batch = {.step = request.for_step, .serial = ++serial_};
    auto& asked_in = asked_in_[request.key][parity(request.for_step)];
    if (asked_in == batch.serial) return;
    asked_in = batch.serial;
    ++batch.size;
  }
  /// Scores a visit. Invalid and repeated ids are ignored. Pre: 0 <= view.layer < layers.
  void routed(const routing_view& view) noexcept {
    auto& batch = batches_[view.layer][parity(view.step)];
    const bool asked = batch.serial != 0 && batch.step == view.step;
    if (asked) counts_.predicted += batch.size;
    ++visit_;
    for (const auto expert : view.experts) {
      if (expert < 0 || expert >= experts_) continue;
      auto& seen_in = seen_in_[expert];
      if (seen_in == visit_) continue;
      seen_in = visit_;
      ++counts_.routed;
      if (asked && asked_in_[{view.layer, expert}][parity(view.step)] == batch.serial)
        ++counts_.predicted_and_routed;
    }
    if (asked) batch.serial = 0;
  }
  [[nodiscard]] const counts& so_far() const noexcept { return counts_; }

 private:
  /// The requests of one layer for one step.
  struct request_batch {
    step_id step = 0;
    std::uint64_t serial = 0;  // number of the batch; 0: none, or already scored
    std::uint64_t size = 0;    // distinct keys
  };

  static std::size_t parity(step_id step) noexcept { return static_cast<std::size_t>(step & 1U); }

  std::int32_t layers_;
  std::int32_t experts_;
  std::uint64_t serial_ = 0;
  std::uint64_t visit_ = 0;
  per_layer<std::array<request_batch, 2>> batches_;  // [layer][parity of the step]
  per_key<std::array<std::uint64_t, 2>> asked_in_;   // [key][parity]: last batch that requested it
  per_expert<std::uint64_t> seen_in_;                // [expert]: last visit that routed it
  counts counts_;
};

}  // namespace hotset
