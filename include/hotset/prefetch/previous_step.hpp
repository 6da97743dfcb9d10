// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Requests the experts that the next layer used at its last visit.
///
/// Rule: during layer l, requests the distinct experts of layer l+1's last visit, in its routed order, for this step;
///   during the last layer, those of layer 0, for the next step. A layer without a visit gets no requests.
/// Source: DeepSpeed's "dependency" prefetch, as the fMoE talk describes it.
/// Deviations: the last visit counts, which is the last step's unless a step skipped the layer.
/// Exact: yes (never changes what is computed).
/// Cost: O(ids) per visit. Memory: 4 bytes per key, less if a visit cannot use a whole layer.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/numbers/unique_ids.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/policy/policy_config.hpp"
#include "hotset/policy/prefetch_policy.hpp"

namespace hotset {

class previous_step {
 public:
  using config = no_options;
  static constexpr std::string_view name = "previous_step";
  static constexpr prefetch_traits traits{};

  explicit previous_step(const geometry& shape, const config& = {})
      : layers_(shape.layers),
        most_(std::min(shape.expert_count(), shape.ranks() * shape.tokens_per_visit())),
        unique_(shape.expert_count(), most_),
        used_(static_cast<std::size_t>(layers_) * most_, no_expert),
        counts_(static_cast<std::size_t>(layers_), 0) {}

  [[nodiscard]] std::int32_t depth() const noexcept { return 1; }
  [[nodiscard]] std::size_t most_requests() const noexcept { return most_; }
  /// Pre: 0 <= view.layer < layers.
  void observe(const routing_view& view) noexcept {
    HOTSET_ASSERT(view.layer >= 0 && view.layer < layers_);
    expert_id* const row = &used_[index_of(view.layer) * most_];
    // A visit with more tokens than announced is cut short.
    const std::size_t distinct =
        unique_.collect(view.experts, [this, row](std::size_t at, expert_id expert) {
          if (at < most_) row[at] = expert;
        });
    counts_[view.layer] = std::min(distinct, most_);
  }
  /// Pre: 0 <= view.layer < layers.
  [[nodiscard]] std::size_t propose(const routing_view& view, const forecast&,
                                    std::span<prefetch_request> out) noexcept {
    const bool wraps = view.layer + 1 >= layers_;
    const auto next = wraps ? layer_id{} : view.layer + 1;
    const auto count = std::min(counts_[next], out.size());
    const auto row = std::span(used_).subspan(index_of(next) * most_, count);
    for (std::size_t n = 0; n < count; ++n)
      out[n] = {{next, row[n]}, view.step + (wraps ? 1U : 0U)};
    return count;
  }

 private:
  std::int32_t layers_;
  std::size_t most_;  // most distinct experts of a visit
  unique_ids unique_;
  std::vector<expert_id> used_;    // [layers, most_]
  per_layer<std::size_t> counts_;  // [layer]
};

static_assert(prefetch_policy<previous_step>);

}  // namespace hotset
