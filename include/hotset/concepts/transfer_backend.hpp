// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Requirements on what moves bytes into slots. It decides nothing.
///
/// | expression | meaning |
/// |---|---|
/// | `typename B::stream_type` | a queue of work that runs in order: a device stream, or the calling thread |
/// | `submit(fills, stream, urgency)` | starts copying; each copy starts no earlier than its `after`; the first `accepted` fills were taken under one ticket, the others were not touched |
/// | `promote(ticket)` | a visit now waits for it |
/// | `cancel(ticket)` | true: no byte of it moved, and none will |
/// | `fence(stream, ticket)` | what is enqueued on the stream from now on starts after the copies have arrived |
/// | `record(stream)` | a ticket that arrives when what is enqueued on the stream by now has run; `no_ticket` if it has |
/// | `poll(ticket)`, `wait(ticket)` | where the copies stand; `no_ticket` has arrived |
/// | `check(pool_layout)` | optional: why a cache of this layout cannot live in the backend's slots, asked when the cache is built; a backend that does not know its slots has none |
/// | `invalidate(key)`, `invalidate(layer)` | optional: forwards to a source that keeps copies of host bytes (memory/forgets_experts.hpp); called when no copy of the cache is under way |
///
/// A ticket has arrived when every tensor of every fill is in place. Errors are sticky per ticket: a failure is never
/// forgotten, however many tickets follow.
/// Full is not failed: `submit` of demand (`urgency::now`) waits for room, for a visit whose demand is not taken whole fails;
/// speculation is refused at once.
/// Calls are `noexcept`. What may block: `wait`, `record`, `submit` of demand, `fence` on a stream that is the calling thread.

#include <concepts>
#include <cstddef>
#include <span>

#include "hotset/core/error.hpp"
#include "hotset/core/fill.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/status.hpp"

namespace hotset {

/// What became of a submit call.
struct [[nodiscard]] submission {
  ticket id = no_ticket;
  std::size_t accepted = 0;  ///< of the fills, in order
};

template <class B>
concept transfer_backend =
    requires(B backend, std::span<const fill> fills, typename B::stream_type& stream, urgency when, ticket t) {
      { backend.submit(fills, stream, when) } noexcept -> std::same_as<submission>;
      { backend.promote(t) } noexcept;
      { backend.cancel(t) } noexcept -> std::same_as<bool>;
      { backend.fence(stream, t) } noexcept -> std::same_as<status>;
      { backend.record(stream) } noexcept -> std::same_as<ticket>;
      { backend.poll(t) } noexcept -> std::same_as<transfer_state>;
      { backend.wait(t) } noexcept -> std::same_as<transfer_state>;
    };

namespace detail {
/// Without objection where the backend cannot say.
template <transfer_backend B>
[[nodiscard]] validation check_layout(const B& backend, const pool_layout& layout) {
  if constexpr (requires {
                  { backend.check(layout) } -> std::same_as<validation>;
                })
    return backend.check(layout);
  else
    return std::nullopt;
}
}  // namespace detail

}  // namespace hotset
