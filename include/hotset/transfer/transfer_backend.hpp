// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Requirements on a backend that copies bytes into slots. It makes no decisions.
///
/// | expression | meaning |
/// |---|---|
/// | `typename B::stream_type` | a queue of work that runs in order: a device stream, or the calling thread |
/// | `submit(fills, stream, urgency)` | starts copies; returns a `submission`. See below |
/// | `promote(ticket)` | a visit now waits for the ticket |
/// | `cancel(ticket)` | returns true if no byte has moved, and none will |
/// | `fence(stream, ticket)` | work enqueued on the stream from now on starts after the copies have arrived |
/// | `record(stream)` | a ticket that arrives when all work enqueued so far has run; `no_ticket` if it has |
/// | `poll(ticket)`, `wait(ticket)` | state of the copies; `no_ticket` has arrived |
/// | `check(pool_layout)` | optional: the reason why a cache of this layout cannot use the backend's slots |
/// | `invalidate(key)`, `invalidate(layer)` | optional: forwards to a source that caches host bytes |
///
/// Each copy starts after its fill's `after` has settled. A submit may fail at once; otherwise its ticket settles after
/// every fill's `after`, also if a copy fails. The first `accepted` fills share one ticket; the others are
/// not touched. A ticket has arrived when every tensor of every fill is in place. Errors are sticky per ticket: a
/// failure stays reported, however many tickets follow.
/// A full queue is not a failure: `submit` of demand (`urgency::now`) waits for room, because a visit needs all of its
/// demand copies. Speculation is refused at once.
/// `check` is called when a cache is built. A backend that does not know its slots has none.
/// `invalidate` is called while the cache has no outstanding copy, see transfer/expert_source.hpp.
/// `static_assert(is_transfer_backend<B>())` names the requirement that a class misses.
/// Calls are `noexcept`. These may block: `wait`, `record`, `submit` of demand, `fence` on a stream that is the
/// calling thread.

#include <concepts>
#include <cstddef>
#include <span>

#include "hotset/core/error.hpp"
#include "hotset/core/fill.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/status.hpp"

// clang-format 14 splits compound requirements badly.
// clang-format off
namespace hotset {

/// Result of a submit call.
struct [[nodiscard]] submission {
  ticket id = no_ticket;
  std::size_t accepted = 0;  ///< number of accepted fills, in order
};

namespace detail {
template <class B>
concept has_stream = requires { typename B::stream_type; };
template <class B>
concept submits_fills = requires(B backend, std::span<const fill> fills, typename B::stream_type& stream, urgency when) {
  { backend.submit(fills, stream, when) } noexcept -> std::same_as<submission>;
};
template <class B>
concept promotes = requires(B backend, ticket t) {
  { backend.promote(t) } noexcept;
};
template <class B>
concept cancels = requires(B backend, ticket t) {
  { backend.cancel(t) } noexcept -> std::same_as<bool>;
};
template <class B>
concept fences = requires(B backend, typename B::stream_type& stream, ticket t) {
  { backend.fence(stream, t) } noexcept -> std::same_as<status>;
};
template <class B>
concept records = requires(B backend, typename B::stream_type& stream) {
  { backend.record(stream) } noexcept -> std::same_as<ticket>;
};
template <class B>
concept polls = requires(B backend, ticket t) {
  { backend.poll(t) } noexcept -> std::same_as<transfer_state>;
};
template <class B>
concept waits = requires(B backend, ticket t) {
  { backend.wait(t) } noexcept -> std::same_as<transfer_state>;
};
}  // namespace detail

template <class B>
concept transfer_backend =
    detail::has_stream<B> && detail::submits_fills<B> && detail::promotes<B> && detail::cancels<B> &&
    detail::fences<B> && detail::records<B> && detail::polls<B> && detail::waits<B>;

/// For a static_assert: true for a backend; otherwise compilation fails with a message that names the missing part.
template <class B>
consteval bool is_transfer_backend() {
  static_assert(detail::has_stream<B>, "a backend has a type `stream_type`: a queue of work that runs in order");
  if constexpr (detail::has_stream<B>) {
    static_assert(detail::submits_fills<B>,
                  "a backend has submission submit(std::span<const fill>, stream_type&, urgency) noexcept");
    static_assert(detail::fences<B>, "a backend has status fence(stream_type&, ticket) noexcept");
    static_assert(detail::records<B>, "a backend has ticket record(stream_type&) noexcept");
  }
  static_assert(detail::promotes<B>, "a backend has void promote(ticket) noexcept");
  static_assert(detail::cancels<B>, "a backend has bool cancel(ticket) noexcept");
  static_assert(detail::polls<B>, "a backend has transfer_state poll(ticket) noexcept");
  static_assert(detail::waits<B>, "a backend has transfer_state wait(ticket) noexcept");
  return transfer_backend<B>;
}

namespace detail {
/// Returns nothing if the backend has no check.
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
