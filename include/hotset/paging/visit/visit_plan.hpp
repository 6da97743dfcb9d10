// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What the pager decided for one visit (or one token group of it): hits, copies, and what stays on the host.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "hotset/core/fill.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/status.hpp"
#include "hotset/core/visit_event.hpp"

namespace hotset {

/// The way in which a distinct expert of a visit is served.
enum class service : std::uint8_t {
  hit,   ///< resident before the visit
  fill,  ///< copied into a slot for this visit
  host,  ///< refused a slot: the engine serves it from the host copy
};

/// A decision while it is being made: what a pager's parts write and others read as a `visit_plan`.
/// Memory: taken once for the largest visit. No allocation afterwards.
struct plan_draft {
  plan_draft() = default;
  explicit plan_draft(const geometry& shape)
      : experts(shape.distinct_per_visit()),
        slots(capacity()),
        services(capacity()),
        hits(capacity(), service::hit),
        order(capacity()),
        weights(capacity()),
        ranks(capacity()),
        fills(capacity()),
        late(capacity()),
        requested(capacity()),
        requested_steps(capacity()),
        request_of(capacity()),
        deferred(2 * capacity()),
        edited_ids(shape.ids_per_visit()) {}

  /// Most distinct experts of one visit.
  [[nodiscard]] std::size_t capacity() const noexcept { return experts.size(); }
  /// Position of the expert that is the n-th in the order of last uses.
  [[nodiscard]] std::size_t at(std::size_t n) const noexcept { return reordered ? order[n] : n; }
  [[nodiscard]] service service_of(std::size_t i) const noexcept {
    return all_hits ? service::hit : services[i];
  }

  /// Reset for each visit, so it is small.
  struct counters {
    std::uint32_t distinct = 0;
    std::uint32_t fills = 0;
    std::uint32_t late = 0;
    std::uint32_t host = 0;
    std::uint32_t requested = 0;
    std::uint32_t deferred = 0;
    std::uint32_t ignored = 0;
    std::uint32_t groups = 1;
    std::uint32_t group = 0;
  };

  void reset() noexcept {
    count = counters{};
    judged = edited = false;
    all_hits = true;
    reordered = expert_wise = speculative = false;
  }
  /// The routed ids, in memory of the plan's own: to be changed.
  [[nodiscard]] std::span<expert_id> edit_routed() noexcept {
    const auto own = std::span(edited_ids).first(routed.size());
    if (routed.data() != own.data()) routed.copy_to(own.data());
    routed = own;
    return own;
  }
  /// Pre for this and leave_on_host: nothing but hits, or written before.
  void write_services() noexcept {
    if (!all_hits) return;
    std::fill_n(services.begin(), count.distinct, service::hit);
    all_hits = false;
  }
  void leave_on_host(std::size_t i) noexcept {
    write_services();
    services[i] = service::host;
    slots[i] = no_slot;
    ++count.host;
  }

  visit_context context{};
  counters count{};
  std::span<const std::uint32_t> tokens{};
  id_view<expert_id> routed{};
  std::uint64_t serial = 0;  ///< of the open plan that it is, or was
  bool all_hits = true;      ///< then `services` is not written
  bool reordered = false;    ///< `order` differs from 0, 1, 2, ...
  bool expert_wise = false;
  bool speculative = false;
  bool judged = false;  ///< a miss policy was asked
  bool edited = false;
  std::uint32_t refused = 0;  ///< of a speculative plan: requests for which there was no slot
  std::vector<expert_id> experts;
  std::vector<slot_id> slots;
  std::vector<service> services;
  std::vector<service> hits;         ///< what `services` would hold if all are hits
  std::vector<std::uint32_t> order;  ///< of the last appearances
  std::vector<double> weights;
  std::vector<std::uint16_t> ranks;
  std::vector<fill> fills;
  std::vector<slot_id> late;
  std::vector<prefetch_event> requested;  ///< resident keys that a prefetcher asked for
  std::vector<step_id> requested_steps;   ///< by fill: the step that a speculative one is meant for
  std::vector<std::uint32_t> request_of;  ///< by fill: position of its request
  std::vector<std::uint32_t> deferred;    ///< with room for fills that are not made after all
  std::vector<expert_id> edited_ids;  ///< what `routed` views where it differs from the engine's
};

class visit_plan;

namespace detail {
/// For a pager's parts: everybody else reads a plan through its functions.
[[nodiscard]] plan_draft& draft_of(visit_plan& plan) noexcept;
[[nodiscard]] const plan_draft& draft_of(const visit_plan& plan) noexcept;
}  // namespace detail

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
  [[nodiscard]] std::size_t capacity() const noexcept { return draft_.capacity(); }

 private:
  friend plan_draft& detail::draft_of(visit_plan& plan) noexcept;
  friend const plan_draft& detail::draft_of(const visit_plan& plan) noexcept;
  plan_draft draft_;
};

namespace detail {
inline plan_draft& draft_of(visit_plan& plan) noexcept { return plan.draft_; }
inline const plan_draft& draft_of(const visit_plan& plan) noexcept { return plan.draft_; }
}  // namespace detail

/// The view of a visit, or of one group of a visit that did not fit, that an engine computes.
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

  /// Position among the visit's groups.
  [[nodiscard]] std::size_t number() const noexcept { return plan_->group(); }
  [[nodiscard]] bool is_last() const noexcept { return !plan_->more(); }
  /// Whatever else was decided.
  [[nodiscard]] const visit_plan& plan() const noexcept { return *plan_; }

 private:
  const visit_plan* plan_;
  std::span<const slot_id> row_;
};

namespace detail {
/// Returns the status of use(group), or ok if it returns nothing.
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
