// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What an engine needs to compute a visit, or one group of a visit that did not fit.

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/status.hpp"
#include "hotset/core/visit_event.hpp"
#include "hotset/paging/visit/visit_plan.hpp"

namespace hotset {

/// A view: good while the call that it was made for runs. No span of it is empty for "all" or for "as before".
class visit_group {
 public:
  /// `row`: slot of every expert of the visit's layer.
  visit_group(const visit_plan& plan, std::span<const slot_id> row) noexcept
      : plan_(&plan), row_(row) {}

  [[nodiscard]] const visit_context& context() const noexcept { return plan_->context(); }
  [[nodiscard]] layer_id layer() const noexcept { return context().layer; }
  /// The tokens to compute, ascending. By expert (`expert_wise`) a part of every token's sum.
  [[nodiscard]] std::span<const std::uint32_t> tokens() const noexcept { return plan_->tokens(); }
  /// Shape: [experts of the layer]. Slot of each, -1 for one that is absent: what the kernel looks up.
  [[nodiscard]] std::span<const slot_id> row() const noexcept { return row_; }
  /// Shape: [tokens of the visit * top_k]. The ids to compute.
  [[nodiscard]] id_view<expert_id> routed() const noexcept { return plan_->routed(); }
  [[nodiscard]] bool edited() const noexcept { return plan_->edited(); }
  /// The group's distinct experts, and the slot of each; no_slot for one that stays on the host.
  [[nodiscard]] id_view<expert_id> experts() const noexcept { return plan_->experts(); }
  [[nodiscard]] std::span<const slot_id> slots() const noexcept { return plan_->slots(); }
  [[nodiscard]] bool expert_wise() const noexcept { return plan_->expert_wise(); }

  /// Which of the visit's groups this is.
  [[nodiscard]] std::size_t number() const noexcept { return plan_->group(); }
  [[nodiscard]] bool is_last() const noexcept { return !plan_->more(); }
  /// Whatever else was decided.
  [[nodiscard]] const visit_plan& plan() const noexcept { return *plan_; }

 private:
  const visit_plan* plan_;
  std::span<const slot_id> row_;
};

namespace detail {
/// What use(group) said: its status, or ok if it returns nothing.
template <class Use>
status shown(Use& use, const visit_group& group) {
  if constexpr (std::is_void_v<std::invoke_result_t<Use&, const visit_group&>>) {
    use(group);
    return status::ok;
  } else {
    return use(group);
  }
}
}  // namespace detail

}  // namespace hotset
