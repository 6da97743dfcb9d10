// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A decision while it is being made: what a pager writes and others read as a `visit_plan`.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/core/fill.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/visit_event.hpp"

namespace hotset {

/// How a distinct expert of a visit is served.
enum class service : std::uint8_t {
  hit,   ///< resident before the visit
  fill,  ///< copied into a slot for this visit
  host,  ///< refused a slot: the engine serves it from the host copy
};

/// Memory: taken once for the largest visit. No allocation afterwards.
struct plan_draft {
  plan_draft() = default;
  explicit plan_draft(const geometry& shape)
      : capacity(capacity_for(shape)),
        experts(capacity),
        slots(capacity),
        services(capacity),
        hits(capacity, service::hit),
        order(capacity),
        weights(capacity),
        ranks(capacity),
        fills(capacity),
        late(capacity),
        requested(capacity),
        requested_steps(capacity),
        request_of(capacity),
        deferred(2 * capacity),
        edited_ids(shape.ids_per_visit()) {}

  /// Most distinct experts of one visit.
  [[nodiscard]] static std::size_t capacity_for(const geometry& shape) noexcept {
    return shape.distinct_per_visit();
  }

  /// What every plan starts from; small, for it is written anew for each visit.
  struct counters {
    std::uint32_t distinct = 0;
    std::uint32_t fills = 0;
    std::uint32_t replacing = 0;  ///< of a pool's demand: its last fills, those that have victims
    std::uint32_t late = 0;
    std::uint32_t host = 0;
    std::uint32_t requested = 0;
    std::uint32_t deferred = 0;
    std::uint32_t dropped = 0;
    std::uint32_t substituted = 0;
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
  /// Pre, of the two below: nothing but hits, or written before.
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
  std::size_t capacity = 0;
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

}  // namespace hotset
