// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The tickets that did not arrive, for a ring that has used their places again.

#include <algorithm>
#include <cstddef>
#include <vector>

#include "hotset/core/fill.hpp"

namespace hotset {

/// A ticket that a ring no longer knows has arrived, unless it stands here. When there are too many, the oldest are
/// dropped and with them the knowledge of what arrived before: all of those tickets then count as failed, for a copy
/// that is made again does no harm, and one that is taken for granted does.
/// Complexity: O(log lost). No allocation after construction. Threads: compatible.
class lost_tickets {
 public:
  explicit lost_tickets(std::size_t most) : lost_(most) {}

  /// The place of `t`, which ended as `state`, is used again. Tickets come in ascending order.
  void leave(ticket t, transfer_state state) noexcept {
    if (t == no_ticket || state == transfer_state::arrived) return;
    if (lost_.empty()) {
      unknown_ = t;
      return;
    }
    if (count_ == lost_.size()) {
      unknown_ = at(0).id;
      first_ = (first_ + 1) % lost_.size();
      --count_;
    }
    at(count_++) = {t, state};
  }
  /// What became of a ticket whose place was used again.
  [[nodiscard]] transfer_state state(ticket t) const noexcept {
    if (t == no_ticket) return transfer_state::arrived;
    if (t <= unknown_) return transfer_state::failed;
    std::size_t begin = 0;
    for (std::size_t end = count_; begin < end;) {
      const auto middle = begin + (end - begin) / 2;
      if (at(middle).id < t)
        begin = middle + 1;
      else
        end = middle;
    }
    return begin < count_ && at(begin).id == t ? at(begin).state : transfer_state::arrived;
  }

 private:
  struct record {
    ticket id = no_ticket;
    transfer_state state = transfer_state::arrived;
  };
  [[nodiscard]] record& at(std::size_t n) noexcept { return lost_[(first_ + n) % lost_.size()]; }
  [[nodiscard]] const record& at(std::size_t n) const noexcept {
    return lost_[(first_ + n) % lost_.size()];
  }

  std::vector<record> lost_;  ///< ring, ascending
  std::size_t first_ = 0;
  std::size_t count_ = 0;
  ticket unknown_ = no_ticket;  ///< up to here nobody knows what arrived
};

}  // namespace hotset
