// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What the pager decided for one visit (or one token group of it): hits, copies, and what stays on the host.

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "hotset/core/fill.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/visit_event.hpp"
#include "hotset/paging/visit/plan_draft.hpp"

namespace hotset {

/// A buffer that a caller makes once and passes to every plan call.
class visit_plan {
 public:
  visit_plan() = default;
  explicit visit_plan(const geometry& shape) : draft_(shape) {}
  visit_plan(const visit_plan&) = delete;  // a pager's open plan is one object
  visit_plan& operator=(const visit_plan&) = delete;
  /// The other one is left without room for any visit: a pager refuses it.
  visit_plan(visit_plan&& other) noexcept : draft_(std::exchange(other.draft_, plan_draft())) {}
  visit_plan& operator=(visit_plan&& other) noexcept {
    draft_ = std::exchange(other.draft_, plan_draft());
    return *this;
  }
  ~visit_plan() = default;

  [[nodiscard]] const visit_context& context() const noexcept { return draft_.context; }
  /// The distinct experts, in order of first appearance.
  [[nodiscard]] id_view<expert_id> experts() const noexcept {
    return std::span(draft_.experts).first(draft_.count.distinct);
  }
  /// The slot of each of them; no_slot for one that stays on the host.
  [[nodiscard]] std::span<const slot_id> slots() const noexcept {
    return {draft_.slots.data(), draft_.count.distinct};
  }
  [[nodiscard]] std::span<const service> services() const noexcept {
    return {draft_.all_hits ? draft_.hits.data() : draft_.services.data(), draft_.count.distinct};
  }
  /// The copies to make, in the order of need.
  [[nodiscard]] std::span<const fill> fills() const noexcept {
    return {draft_.fills.data(), draft_.count.fills};
  }
  /// Slots of hits whose speculative copy may still be on its way: fence on them before use.
  [[nodiscard]] std::span<const slot_id> late_slots() const noexcept {
    return {draft_.late.data(), draft_.count.late};
  }
  /// True if nothing is copied and nothing stays on the host.
  [[nodiscard]] bool all_hits() const noexcept { return draft_.all_hits; }
  [[nodiscard]] std::size_t host_count() const noexcept { return draft_.count.host; }
  /// Shape: [tokens of the visit * top_k]. The ids that an engine computes: the router's, or a miss policy's. -1 where a
  /// policy dropped the expert (renormalise the weights of the others) and where an id names no expert.
  /// A speculative plan has none. Valid until the plan is used again.
  [[nodiscard]] id_view<expert_id> routed() const noexcept { return draft_.routed; }
  /// True if a miss policy has changed what the router chose.
  [[nodiscard]] bool edited() const noexcept { return draft_.edited; }
  /// Misses that no token uses after all.
  [[nodiscard]] std::size_t dropped_count() const noexcept { return draft_.count.dropped; }
  [[nodiscard]] std::size_t substituted_count() const noexcept { return draft_.count.substituted; }
  /// True if a miss policy was asked, whatever it decided.
  [[nodiscard]] bool judged() const noexcept { return draft_.judged; }
  /// Of a speculative plan: the position of the request that fill i is made for.
  [[nodiscard]] std::uint32_t request_of(std::size_t i) const noexcept {
    return draft_.request_of[i];
  }
  /// Of a speculative plan: positions of the requests that got no copy, ascending.
  [[nodiscard]] std::span<const std::uint32_t> deferred() const noexcept {
    return {draft_.deferred.data(), draft_.count.deferred};
  }
  /// Routed ids that name no expert of the layer, -1 included.
  [[nodiscard]] std::size_t ignored_ids() const noexcept { return draft_.count.ignored; }

  /// Token groups: 1 for a visit that fits.
  [[nodiscard]] std::size_t groups() const noexcept { return draft_.count.groups; }
  [[nodiscard]] std::size_t group() const noexcept { return draft_.count.group; }
  [[nodiscard]] bool more() const noexcept { return draft_.count.group + 1 < draft_.count.groups; }
  /// The tokens of this group, ascending: all of a visit in one group, and of every group in expert-wise mode. Of a
  /// speculative plan none.
  [[nodiscard]] std::span<const std::uint32_t> tokens() const noexcept { return draft_.tokens; }
  /// True if each group computes a part of every token's sum: the order of summation changes (not exact).
  [[nodiscard]] bool expert_wise() const noexcept { return draft_.expert_wise; }
  [[nodiscard]] bool speculative() const noexcept { return draft_.speculative; }
  [[nodiscard]] std::size_t capacity() const noexcept { return draft_.capacity; }

  /// For who decides: what a pager and its parts write. Everybody else reads it through the functions above.
  [[nodiscard]] plan_draft& draft() noexcept { return draft_; }
  [[nodiscard]] const plan_draft& draft() const noexcept { return draft_; }

 private:
  plan_draft draft_;
};

}  // namespace hotset
