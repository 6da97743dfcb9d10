// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Copies experts into host slots in the calling thread before `submit` returns: no thread, no lock, no outstanding
/// copy.

#include <cstddef>
#include <cstdint>
#include <span>

#include "hotset/core/error.hpp"
#include "hotset/core/fill.hpp"
#include "hotset/core/status.hpp"
#include "hotset/transfer/expert_copy.hpp"
#include "hotset/transfer/expert_source.hpp"
#include "hotset/transfer/memory/host_slot_bank.hpp"
#include "hotset/transfer/ticket_board.hpp"
#include "hotset/transfer/transfer_backend.hpp"
#include "hotset/transfer/transfer_observer.hpp"

namespace hotset {

/// A stream that stands for the calling thread: all enqueued work has run.
struct inline_stream {};

/// For engines that compute in the thread that calls the cache. Speculative copies also run at once, so they delay the
/// caller. A batch stops at its first failed copy. Threads: compatible. No allocation after construction.
template <expert_origin Origin>
class inline_backend {
 public:
  using stream_type = inline_stream;

  /// Pre: `origin`, `bank` and `observer` outlive the backend. `observer`: notified of copies and of the caller's
  /// waits, which are the times of its submits; null: none.
  inline_backend(const Origin& origin, const host_slot_bank& bank,
                 transfer_observer* observer = nullptr)
      : copy_(origin, bank), bank_(bank), observer_(observer), lost_(most_lost) {}

  submission submit(std::span<const fill> fills, inline_stream&, urgency when) noexcept {
    if (fills.empty()) return {};
    const auto begin = observed_now();
    auto state = transfer_state::arrived;
    ++last_;
    for (const auto& f : fills) {
      const auto from = observed_now();
      const auto bytes = copy_.copy(f, 0, 0).bytes;
      if (observer_ != nullptr)
        observer_->on_copy(
            {f, last_, when, bytes, begin, from, observed_clock::now(), bytes != 0, this});
      if (bytes == 0) {
        state = transfer_state::failed;
        break;
      }
      bytes_moved_ += bytes;
    }
    if (observer_ != nullptr) observer_->on_wait({last_, begin, observed_clock::now(), this});
    lost_.leave(last_, state);
    return {last_, fills.size()};
  }
  void promote(ticket) noexcept {}
  bool cancel(ticket) noexcept { return false; }
  status fence(inline_stream&, ticket t) noexcept {
    return poll(t) == transfer_state::arrived ? status::ok : status::fill_failed;
  }
  ticket record(inline_stream&) noexcept { return no_ticket; }
  [[nodiscard]] transfer_state poll(ticket t) const noexcept { return lost_.state(t); }
  [[nodiscard]] transfer_state wait(ticket t) noexcept { return poll(t); }
  [[nodiscard]] validation check(const pool_layout& layout) const { return bank_.check(layout); }
  /// Forwards to the source, see transfer/expert_source.hpp.
  template <class KeyOrLayer>
  void invalidate(KeyOrLayer what) const noexcept {
    copy_.invalidate(what);
  }
  /// Units: bytes copied since construction.
  [[nodiscard]] std::uint64_t bytes_moved() const noexcept { return bytes_moved_; }

 private:
  /// Number of failures with individually known tickets. Tickets up to an older failure all count as failed.
  static constexpr std::size_t most_lost = 1024;

  [[nodiscard]] observed_clock::time_point observed_now() const noexcept {
    return observer_ != nullptr ? observed_clock::now() : observed_clock::time_point{};
  }

  expert_copy<Origin> copy_;
  const host_slot_bank& bank_;
  transfer_observer* observer_;
  lost_tickets lost_;
  ticket last_ = no_ticket;
  std::uint64_t bytes_moved_ = 0;
};

}  // namespace hotset
