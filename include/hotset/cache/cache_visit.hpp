// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A visit under way: its decision, and the slots that it keeps.

#include <cstddef>
#include <utility>
#include <vector>

#include "hotset/paging/residency/slot_map.hpp"
#include "hotset/paging/visit/visit_plan.hpp"
#include "hotset/transfer/transfer_backend.hpp"

namespace hotset {

template <class Pager, transfer_backend Backend>
class slot_cache;

/// Made once by `slot_cache::make_visit`, reused.
/// It can be moved, while it is open too; the one it was moved from is closed, and every call refuses it.
/// One that goes away ends as `slot_cache::abandon` ends it, on the stream of its last call: that and the cache outlive it.
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

  /// The decision: experts, slots, token groups, which experts stay on the host.
  [[nodiscard]] const visit_plan& plan() const noexcept { return plan_; }
  /// True while the visit has a further group: release this one, then call `resolve_next`.
  [[nodiscard]] bool more() const noexcept { return plan_.more(); }
  [[nodiscard]] bool is_open() const noexcept { return ends_.is_open; }

 private:
  template <class Pager, transfer_backend Backend>
  friend class slot_cache;
  /// How the cache of the last call ends a visit that is open or has groups left. Of other visits there is none.
  struct ending {
    void (*run)(void* cache, void* stream, cache_visit& visit) noexcept = nullptr;
    void* cache = nullptr;
    void* stream = nullptr;
    std::size_t pins = 0;  ///< of pins_
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
