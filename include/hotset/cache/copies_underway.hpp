// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Copies that were submitted and not yet waited for.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "hotset/core/fill.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/paging/residency/slot_map.hpp"

namespace hotset {

/// One submitted copy.
struct copy_underway {
  ticket batch = no_ticket;
  slot_id slot = no_slot;  ///< no_slot: the copy was abandoned, and only its end matters
  std::uint32_t generation = 0;
  bool speculative = false;
  step_id for_step = 0;
};

/// Copies in order of submission. No allocation after construction.
class copies_underway : private std::vector<copy_underway> {
  using base = std::vector<copy_underway>;

 public:
  explicit copies_underway(std::size_t most) { reserve(most); }

  using base::begin;
  using base::empty;
  using base::end;
  using base::rbegin;
  using base::rend;
  using base::size;
  [[nodiscard]] std::size_t speculative() const noexcept { return speculative_; }

  /// Pre: size() < capacity.
  void watch(const copy_underway& copy) noexcept {
    HOTSET_ASSERT(size() < capacity());
    push_back(copy);
    speculative_ += copy.speculative ? 1U : 0U;
  }
  template <class Backend>
  void wait_for_all(Backend& backend) const noexcept {
    for (const auto& copy : *this) (void)backend.wait(copy.batch);
  }
  template <class Backend>
  void wait_for_first(Backend& backend) const noexcept {
    (void)backend.wait(front().batch);
  }
  /// Reports arrived and failed copies to the pager. Returns false if a copy failed that a visit may have read.
  template <class Backend, class Pager>
  bool take_in_settled(Backend& backend, Pager& pages) noexcept {
    bool unread = true;
    std::erase_if(static_cast<base&>(*this), [&](const copy_underway& copy) {
      const auto state = backend.poll(copy.batch);
      if (state == transfer_state::pending) return false;
      speculative_ -= copy.speculative ? 1U : 0U;
      if (copy.slot == no_slot) return true;
      if (state == transfer_state::arrived) {
        pages.arrived(copy.slot, copy.generation);
        return true;
      }
      // A slot that is still filling had no reader. In any other state a visit may have read it before.
      const auto& entry = pages.slot(copy.slot);
      if (entry.state != slot_state::filling || entry.generation != copy.generation) unread = false;
      pages.failed(copy.slot, copy.generation);
      return true;
    });
    return unread;
  }

 private:
  std::size_t speculative_ = 0;
};

}  // namespace hotset
