// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The pager's decision for one visit or one of its groups: hits, copies, and experts that stay on the host.

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

/// The way in which an expert of a visit is served.
enum class service : std::uint8_t {
  hit,   ///< resident before the visit
  fill,  ///< copied into a slot for this visit
  host,  ///< refused a slot: the engine serves it from the host copy
};

/// A decision in progress. A pager's parts write it; other code reads it as a `visit_plan`. Memory: allocated once for
/// the largest visit. No allocation afterwards.
struct plan_draft {
  plan_draft() = default;
  explicit plan_draft(const geometry& shape)
      : experts(shape.distinct_per_visit()),
        slots(capacity()),
        services(capacity()),
        hits(capacity(), service::hit),
        order(capacity()),
        weights(capacity()),
        fills(capacity()),
        late(capacity()),
        requested(capacity()),
        requested_steps(capacity()),
        request_of(capacity()),
        deferred(2 * capacity()),
        edited_ids(shape.ids_per_visit()) {}

  /// Most distinct experts of one visit.
  [[nodiscard]] std::size_t capacity() const noexcept { return experts.size(); }
  /// Position of the n-th expert in order of last use.
  [[nodiscard]] std::size_t at(std::size_t n) const noexcept { return reordered ? order[n] : n; }
  [[nodiscard]] service service_of(std::size_t i) const noexcept {
    return all_hits ? service::hit : services[i];
  }

  /// Counters that are reset for each visit; a small struct keeps that cheap.
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
  /// Returns the routed ids in the plan's own memory, to be changed.
  [[nodiscard]] std::span<expert_id> edit_routed() noexcept {
    const auto own = std::span(edited_ids).first(routed.size());
    if (routed.data() != own.data()) routed.copy_to(own.data());
    routed = own;
    return own;
  }
  /// Pre for write_services and leave_on_host: all are hits, or services are written.
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
  std::uint64_t serial = 0;  ///< serial of the open plan, or of the last one
  bool all_hits = true;      ///< if true, `services` is not written
  bool reordered = false;    ///< `order` differs from 0, 1, 2, ...
  bool expert_wise = false;
  bool speculative = false;
  bool judged = false;  ///< the miss policy was called
  bool edited = false;
  std::uint32_t refused = 0;  ///< of a speculative plan: requests without an available slot
  std::vector<expert_id> experts;
  std::vector<slot_id> slots;
  std::vector<service> services;
  std::vector<service> hits;         ///< contents of `services` if all are hits
  std::vector<std::uint32_t> order;  ///< order of last appearance
  std::vector<double> weights;
  std::vector<fill> fills;
  std::vector<slot_id> late;
  std::vector<prefetch_event> requested;  ///< resident keys that a prefetcher requested
  std::vector<step_id> requested_steps;   ///< by fill: step for which a speculative copy is made
  std::vector<std::uint32_t> request_of;  ///< by fill: position of its request
  std::vector<std::uint32_t> deferred;    ///< has room for fills that are dropped later
  std::vector<expert_id> edited_ids;      ///< ids of `routed` if they differ from the engine's
};

class visit_plan;

namespace detail {
/// For a pager's parts only. Other code reads a plan through its functions.
[[nodiscard]] plan_draft& draft_of(visit_plan& plan) noexcept;
[[nodiscard]] const plan_draft& draft_of(const visit_plan& plan) noexcept;
}  // namespace detail

/// A buffer that the caller creates once and passes to every plan call.
class visit_plan {
 public:
  visit_plan() = default;
  explicit visit_plan(const geometry& shape) : draft_(shape) {}
  visit_plan(const visit_plan&) = delete;  // a pager's open plan is identified by its object
  visit_plan& operator=(const visit_plan&) = delete;
  /// The moved-from plan has no capacity, so a pager refuses it.
  visit_plan(visit_plan&& other) noexcept : draft_(std::exchange(other.draft_, plan_draft())) {}
  visit_plan& operator=(visit_plan&& other) noexcept {
    draft_ = std::exchange(other.draft_, plan_draft());
    return *this;
  }
  ~visit_plan() = default;

  [[nodiscard]] const visit_context& context() const noexcept { return draft_.context; }
  /// The distinct experts in order of first appearance.
  [[nodiscard]] id_view<expert_id> experts() const noexcept {
    return std::span(draft_.experts).first(draft_.count.distinct);
  }
  /// The slot of each expert in experts(); no_slot if it stays on the host.
  [[nodiscard]] std::span<const slot_id> slots() const noexcept {
    return {draft_.slots.data(), draft_.count.distinct};
  }
  [[nodiscard]] std::span<const service> services() const noexcept {
    return {draft_.all_hits ? draft_.hits.data() : draft_.services.data(), draft_.count.distinct};
  }
  /// The copies to make, in order of need.
  [[nodiscard]] std::span<const fill> fills() const noexcept {
    return {draft_.fills.data(), draft_.count.fills};
  }
  /// Slots of hits whose speculative copy is outstanding: wait for it before the bytes are read. The commit publishes
  /// the slots; if a copy cannot arrive, abort the plan before, report the copy, and plan again.
  [[nodiscard]] std::span<const slot_id> late_slots() const noexcept {
    return {draft_.late.data(), draft_.count.late};
  }
  /// True if nothing is copied and nothing stays on the host.
  [[nodiscard]] bool all_hits() const noexcept { return draft_.all_hits; }
  [[nodiscard]] std::size_t host_count() const noexcept { return draft_.count.host; }
  /// Shape: [tokens of the visit * top_k]. The ids that the engine computes: the router's, or a miss policy's. -1 if a
  /// policy dropped the expert (renormalise the other weights) or if an id matches no expert. Empty for a speculative
  /// plan. Valid until the plan is used again.
  [[nodiscard]] id_view<expert_id> routed() const noexcept { return draft_.routed; }
  /// True if a miss policy has changed the router's selection.
  [[nodiscard]] bool edited() const noexcept { return draft_.edited; }
  /// Speculative plans only: position of the request of fill i.
  [[nodiscard]] std::uint32_t request_of(std::size_t i) const noexcept {
    return draft_.request_of[i];
  }
  /// Speculative plans only: positions of the requests without a copy, ascending.
  [[nodiscard]] std::span<const std::uint32_t> deferred() const noexcept {
    return {draft_.deferred.data(), draft_.count.deferred};
  }
  /// Number of routed ids that match no expert of the layer, including -1.
  [[nodiscard]] std::size_t ignored_ids() const noexcept { return draft_.count.ignored; }

  /// Number of groups: 1 for a visit that fits.
  [[nodiscard]] std::size_t groups() const noexcept { return draft_.count.groups; }
  [[nodiscard]] std::size_t group() const noexcept { return draft_.count.group; }
  [[nodiscard]] bool more() const noexcept { return draft_.count.group + 1 < draft_.count.groups; }
  /// Tokens of this group, ascending. All tokens if the visit has one group or is split by expert. Empty for a
  /// speculative plan.
  [[nodiscard]] std::span<const std::uint32_t> tokens() const noexcept { return draft_.tokens; }
  /// True if each group computes a part of every token's sum, so that the order of summation changes (not exact).
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

/// The view of a visit, or of one group of a split visit, that an engine computes. Valid during the call that receives
/// it. Every span lists its contents; an empty span does not mean "all" or "unchanged".
class visit_group {
 public:
  /// `row`: slot of every expert of the visit's layer.
  visit_group(const visit_plan& plan, std::span<const slot_id> row) noexcept
      : plan_(&plan), row_(row) {}

  [[nodiscard]] const visit_context& context() const noexcept { return plan_->context(); }
  [[nodiscard]] layer_id layer() const noexcept { return context().layer; }
  /// Tokens to compute, ascending. With `expert_wise`, a part of every token's sum.
  [[nodiscard]] std::span<const std::uint32_t> tokens() const noexcept { return plan_->tokens(); }
  /// Shape: [experts of the layer]. The slot of each expert, or -1 if absent, for the kernel's look-up.
  [[nodiscard]] std::span<const slot_id> row() const noexcept { return row_; }
  /// Shape: [tokens of the visit * top_k]. The ids to compute.
  [[nodiscard]] id_view<expert_id> routed() const noexcept { return plan_->routed(); }
  [[nodiscard]] bool edited() const noexcept { return plan_->edited(); }
  /// The group's distinct experts; slots() has the slot of each, no_slot if it stays on the host.
  [[nodiscard]] id_view<expert_id> experts() const noexcept { return plan_->experts(); }
  [[nodiscard]] std::span<const slot_id> slots() const noexcept { return plan_->slots(); }
  [[nodiscard]] bool expert_wise() const noexcept { return plan_->expert_wise(); }

  /// Index among the visit's groups.
  [[nodiscard]] std::size_t number() const noexcept { return plan_->group(); }
  [[nodiscard]] bool is_last() const noexcept { return !plan_->more(); }
  /// The complete decision.
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
