// SPDX-License-Identifier: Apache-2.0
#pragma once
/// An open visit of a slot_cache: its plan and its pinned slots.

#include <cstddef>
#include <utility>
#include <vector>

#include "hotset/paging/residency/slot_map.hpp"
#include "hotset/paging/visit/visit_plan.hpp"
#include "hotset/transfer/transfer_backend.hpp"

namespace hotset {

template <class Pager, transfer_backend Backend>
class slot_cache;

/// Created by `slot_cache::make_visit` and reused for many visits. Movable, even while open; every call refuses a
/// moved-from visit. The destructor abandons the visit like `slot_cache::abandon`, on the stream of its last call.
/// Pre: that stream and the cache outlive it.
class cache_visit {
 public:
  cache_visit(cache_visit&& other) noexcept
      : plan_(std::move(other.plan_)),
        pins_(std::move(other.pins_)),
        ends_(std::exchange(other.ends_, {})) {}
  cache_visit& operator=(cache_visit&& other) noexcept {
    if (this == &other) return *this;
    end();
    plan_ = std::move(other.plan_);
    pins_ = std::move(other.pins_);
    ends_ = std::exchange(other.ends_, {});
    return *this;
  }
  cache_visit(const cache_visit&) = delete;
  cache_visit& operator=(const cache_visit&) = delete;
  ~cache_visit() { end(); }

  /// The visit's decisions: experts, slots, token groups, and experts that stay on the host.
  [[nodiscard]] const visit_plan& plan() const noexcept { return plan_; }
  /// True while the visit has another group. Release this group, then call `resolve_next`.
  [[nodiscard]] bool more() const noexcept { return plan_.more(); }
  [[nodiscard]] bool is_open() const noexcept { return ends_.is_open; }

 private:
  template <class Pager, transfer_backend Backend>
  friend class slot_cache;
  /// Ends a visit that is open or has groups left, in the cache of its last call. Empty for other visits.
  struct ending {
    void (*run)(void* cache, void* stream, cache_visit& visit) noexcept = nullptr;
    void* cache = nullptr;
    void* stream = nullptr;
    std::size_t pins = 0;  ///< number of open entries in pins_
    bool is_open = false;
  };
  explicit cache_visit(visit_plan plan) : plan_(std::move(plan)), pins_(plan_.capacity()) {}
  void end() noexcept {
    if (ends_.run != nullptr) ends_.run(ends_.cache, ends_.stream, *this);
  }

  visit_plan plan_;
  std::vector<slot_pin> pins_;
  ending ends_{};
};

}  // namespace hotset
